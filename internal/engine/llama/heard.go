package llama

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"unsafe"
)

// ring keeps the last of what the library said. The library's callback only
// copies into it: no allocation, no I/O; slog gets it later, from Go.
type ring struct {
	mu      sync.Mutex
	buf     [32 << 10]byte
	n       int       // bytes in buf since the last drain
	dropped int       // lines that did not fit
	first   [512]byte // the first error since firstError was called: later ones only say that it failed
	firstN  int
	level   int32
}

var heard ring

// Levels of ggml_log_level; 5 continues the line before.
const (
	levelError = 4
	levelCont  = 5
)

// hearLibrary is the library's log callback.
func hearLibrary(level int32, text, _ unsafe.Pointer) uintptr {
	if text == nil {
		return 0
	}
	n := 0
	for n < 4096 && *(*byte)(unsafe.Add(text, n)) != 0 {
		n++
	}
	heard.add(level, unsafe.Slice((*byte)(text), n))
	return 0
}

func (r *ring) add(level int32, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if level == levelCont {
		level = r.level
	} else {
		r.level = level
	}
	if level == levelError && r.firstN == 0 && len(bytes.TrimSpace(line)) > 0 {
		r.firstN = copy(r.first[:], line)
	}
	if r.n+len(line) > len(r.buf) {
		r.dropped++
		return
	}
	r.n += copy(r.buf[r.n:], line)
}

// firstError returns the first error line since it was called last.
func (r *ring) firstError() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.TrimSpace(string(r.first[:r.firstN]))
	r.firstN = 0
	if s == "" {
		return "the library gives no reason"
	}
	return s
}

// drain hands what was said to a logger at debug level.
func (r *ring) drain(log *slog.Logger) {
	r.mu.Lock()
	text, dropped := "", r.dropped
	if r.n > 0 && log.Enabled(context.Background(), slog.LevelDebug) {
		text = string(r.buf[:r.n])
	}
	r.n, r.dropped = 0, 0
	r.mu.Unlock()
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			log.Debug(line, "from", "llama.cpp")
		}
	}
	if dropped > 0 && text != "" {
		log.Debug("lines of llama.cpp did not fit", "lines", dropped)
	}
}
