package fetch

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// How often progress is shown: a bar often enough to look alive, a line in a log
// rarely enough not to fill it.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 28 // characters
)

// Progress shows how far a download is: a bar that redraws itself if the writer is
// a terminal, otherwise plain lines. It is an io.Writer that counts. Methods on a
// nil Progress do nothing. It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	label string
	total int64 // bytes, 0 if unknown
	bar   bool

	done    int64 // bytes, with those of earlier attempts
	from    int64 // bytes that were there at the start
	last    int64 // bytes at the last line shown
	started time.Time
	shown   time.Time
	now     func() time.Time
}

// NewProgress returns a Progress for total bytes (0 if unknown), of which from are
// there already. A nil w gives a nil Progress.
func NewProgress(w io.Writer, label string, total, from int64) *Progress {
	if w == nil {
		return nil
	}
	return newProgress(w, label, total, from, IsTerminal(w), time.Now)
}

func newProgress(w io.Writer, label string, total, from int64, bar bool, now func() time.Time) *Progress {
	t := now()
	p := &Progress{w: w, label: label, total: total, bar: bar, done: from, from: from, started: t, shown: t, now: now}
	p.line()
	return p
}

// IsTerminal tells whether w is a character device, where a line can be redrawn.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// Write counts len(q) bytes as done. It never fails.
func (p *Progress) Write(q []byte) (int, error) {
	if p != nil {
		p.Set(p.done + int64(len(q)))
	}
	return len(q), nil
}

// Set says that done bytes are there, and shows it if it is time to.
func (p *Progress) Set(done int64) {
	if p == nil {
		return
	}
	p.done = done
	every := lineEvery
	if p.bar {
		every = barEvery
	}
	if t := p.now(); t.Sub(p.shown) >= every {
		p.shown = t
		p.line()
	}
}

// Done shows the last state, unless it is shown already, and ends the line. Call it once, on success or not.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	if p.done != p.last {
		p.line()
	}
	if p.bar {
		fmt.Fprintln(p.w)
	}
}

func (p *Progress) line() {
	p.last = p.done
	text := p.text()
	if p.bar {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.w, text)
}

// text is one state in words: "gemma3-270m  42 %  106 of 253 MB  8.3 MB/s  0:18 left".
func (p *Progress) text() string {
	var b strings.Builder
	b.WriteString(p.label)
	if p.total > 0 {
		share := min(float64(p.done)/float64(p.total), 1)
		if p.bar {
			full := int(share * barWidth)
			fmt.Fprintf(&b, "  [%s%s]", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full))
		}
		fmt.Fprintf(&b, "  %3d %%  %d of %d MB", int(share*100), p.done/1e6, p.total/1e6)
	} else {
		fmt.Fprintf(&b, "  %d MB", p.done/1e6)
	}
	seconds := p.now().Sub(p.started).Seconds()
	if p.done == p.from || seconds < 0.5 {
		return b.String()
	}
	speed := float64(p.done-p.from) / seconds
	fmt.Fprintf(&b, "  %.1f MB/s", speed/1e6)
	if left := float64(p.total - p.done); left > 0 {
		s := int(left/speed + 0.5)
		fmt.Fprintf(&b, "  %d:%02d left", s/60, s%60)
	}
	return b.String()
}
