package supervise

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/svc"
)

// Bounds of what is printed.
const (
	maxLine      = 16 << 10    // bytes; a longer line is cut into several
	queuedLines  = 1024        // lines that wait for a writer that does not take them
	flushTimeout = time.Second // for the last lines, at the end
	reset        = "\x1b[0m"   // ends a colour
	colourPrefix = "\x1b[%dm%s" + reset
)

// colours of the children's names in turn: cyan, yellow, green, magenta, blue.
var colours = []int{36, 33, 32, 35, 34}

// printer puts lines of several writers on one, each whole and behind a name. Nobody
// ever waits for it: if the writer does not take lines (a terminal that is stopped),
// they are dropped and counted.
type printer struct {
	out    io.Writer
	width  int
	lines  chan string
	ending chan struct{} // closed: print what is queued, then end
	ended  chan struct{}
	drops  atomic.Int64
}

// newPrinter starts a printer in the group. Callers owe it one close.
func newPrinter(g *svc.Group, out io.Writer, width int) *printer {
	p := &printer{out: out, width: width, lines: make(chan string, queuedLines), ending: make(chan struct{}), ended: make(chan struct{})}
	g.Task("printer", func(context.Context) {
		defer close(p.ended)
		for {
			select {
			case line := <-p.lines:
				p.print(line)
			case <-p.ending:
				for {
					select {
					case line := <-p.lines:
						p.print(line)
						continue
					default:
					}
					return
				}
			}
		}
	})
	return p
}

func (p *printer) print(line string) {
	if n := p.drops.Swap(0); n > 0 {
		fmt.Fprintf(p.out, "(%d lines were dropped: they came faster than they could be shown)\n", n)
	}
	io.WriteString(p.out, line)
}

// close prints what is queued. It returns false if the writer did not take it in
// time; then the printer's task still hangs in it.
func (p *printer) close() bool {
	close(p.ending)
	select {
	case <-p.ended:
		return true
	case <-time.After(flushTimeout):
		return false
	}
}

// say queues text, which ends in a newline.
func (p *printer) say(text string) {
	select {
	case p.lines <- text:
	default:
		p.drops.Add(1)
	}
}

// named returns a writer that queues every line behind a name. colour is an ANSI
// number, 0 for none.
func (p *printer) named(name string, colour int) *lineWriter {
	name = name + strings.Repeat(" ", max(p.width-len(name), 0))
	if colour != 0 {
		name = fmt.Sprintf(colourPrefix, colour, name)
	}
	return &lineWriter{prefix: name + " | ", say: p.say}
}

// lineWriter cuts what is written into lines. Safe for concurrent use; Write never
// fails and never waits.
type lineWriter struct {
	prefix string
	say    func(string)

	mu    sync.Mutex
	part  []byte // of a line that has no end yet
	last  string // the last whole line that was not empty
	crash string // the first line of a crash, which its stacks follow
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if take := min(len(line), maxLine-len(w.part)); take < len(line) {
			rest, line, whole = b[take:], b[:take], true
		}
		w.part = append(w.part, line...)
		b = rest
		if whole {
			w.line()
		}
	}
	return n, nil
}

// end queues a last line that had no newline.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.part) > 0 {
		w.line()
	}
}

// crashes says whether a line is how a crash begins, of Go's runtime or of the library.
func crashes(line []byte) bool {
	return bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: ")) || bytes.Contains(line, []byte("GGML_ASSERT"))
}

// said returns the line that tells most: a crash's first, else the last; "(nothing)"
// if there was none.
func (w *lineWriter) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.crash, w.last, "(nothing)")
}

// line queues the line and forgets it. A progress bar redraws its line with carriage
// returns: its last state is the line.
func (w *lineWriter) line() {
	text := bytes.TrimRight(w.part, "\r")
	text = text[bytes.LastIndexByte(text, '\r')+1:]
	if w.say(w.prefix + string(text) + "\n"); len(text) > 0 {
		w.last = string(text)
		if w.crash == "" && crashes(text) {
			w.crash = w.last
		}
	}
	w.part = w.part[:0]
}
