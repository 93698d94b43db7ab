package api

import (
	"bytes"
	"net/http"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// SSE writes server-sent events. Every write has its own deadline and is
// flushed: a reader that takes nothing costs one write and is then the one that
// dies. After the first error every call returns that error. One goroutine uses it.
type SSE struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	started bool
	err     error
	buf     []byte
}

// NewSSE prepares a stream on w; nothing is written yet. timeout is that of one
// write, 0 means WriteTimeout.
func NewSSE(w http.ResponseWriter, timeout time.Duration) *SSE {
	if timeout <= 0 {
		timeout = WriteTimeout
	}
	return &SSE{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Started reports whether the status line was written: from then on an error
// can only be told in-band.
func (s *SSE) Started() bool { return s.started }

// SetTimeout changes the deadline of the writes that follow, as when the
// request's own deadline is nearer than that of a write.
func (s *SSE) SetTimeout(timeout time.Duration) { s.timeout = timeout }

// Start writes the headers and flushes them. The other methods call it.
func (s *SSE) Start() error { return s.write(nil) }

// Event writes one event. Data with line breaks becomes several data lines.
func (s *SSE) Event(data []byte) error {
	s.buf = s.buf[:0]
	for {
		line, rest, more := bytes.Cut(data, []byte("\n"))
		s.buf = append(append(append(s.buf, "data: "...), line...), '\n')
		if !more {
			break
		}
		data = rest
	}
	return s.write(append(s.buf, '\n'))
}

// Raw writes bytes that are whole events already, as a relay has them.
func (s *SSE) Raw(event []byte) error { return s.write(event) }

// Heartbeat writes a comment, which clients skip. It is how a client that left
// without a word is noticed.
func (s *SSE) Heartbeat() error { return s.write([]byte(": alive\n\n")) }

// Error writes the in-band error event that ends a broken stream; Done must not
// follow.
func (s *SSE) Error(cause *room.Cause) error { return s.Event(ErrorJSON(cause)) }

// Done writes the end that says the model finished.
func (s *SSE) Done() error { return s.Event([]byte("[DONE]")) }

func (s *SSE) write(b []byte) error {
	if s.err != nil {
		return s.err
	}
	renew(s.rc, s.timeout)
	if !s.started {
		s.started = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // or nginx gathers the stream
		s.w.WriteHeader(http.StatusOK)
	}
	if len(b) > 0 {
		if _, s.err = s.w.Write(b); s.err != nil {
			return s.err
		}
	}
	s.err = s.rc.Flush()
	return s.err
}

// Whole writes an answer that is no stream after all, under the same deadline;
// nothing may have been written before.
func (s *SSE) Whole(status int, contentType string, body []byte) error {
	if s.err != nil {
		return s.err
	}
	s.started = true
	renew(s.rc, s.timeout)
	s.w.Header().Set("Content-Type", contentType)
	s.w.WriteHeader(status)
	if _, s.err = s.w.Write(body); s.err == nil {
		s.err = s.rc.Flush()
	}
	return s.err
}
