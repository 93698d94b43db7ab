package main

import (
	"fmt"
	"os"
	"time"
)

// console prints the report to stdout, and what goes on meanwhile to stderr: on a
// terminal as one line that is written over, else a line every few seconds.
type console struct {
	terminal bool
	shown    bool // a progress line stands
	last     time.Time
}

// betweenLines is how often progress is told where it cannot be written over.
const betweenLines = 3 * time.Second

func newConsole() *console {
	st, err := os.Stderr.Stat()
	return &console{terminal: err == nil && st.Mode()&os.ModeCharDevice != 0, last: time.Now()}
}

// say prints one line of the report.
func (c *console) say(label, format string, args ...any) {
	c.clear()
	fmt.Printf("%-10s %s\n", label, fmt.Sprintf(format, args...))
}

// progress tells what goes on.
func (c *console) progress(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.terminal {
		fmt.Fprintf(os.Stderr, "\r\033[K%-10s %s", "", line)
		c.shown = true
		return
	}
	if time.Since(c.last) >= betweenLines {
		c.last = time.Now()
		fmt.Fprintf(os.Stderr, "%-10s … %s\n", "", line)
	}
}

func (c *console) clear() {
	if c.shown {
		fmt.Fprint(os.Stderr, "\r\033[K")
		c.shown = false
	}
}
