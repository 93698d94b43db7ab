package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent bounds one event of a worker's stream: SGLang's /generate repeats the
// whole text in every event, and 8 MiB is a text of two million tokens.
const MaxEvent = 8 << 20

// Errors of EventReader.Next besides the reader's own.
var ErrEventTooLong = errors.New("an event is longer than the limit")

// Event is one server-sent event. Its slices are valid until the next Next.
type Event struct {
	Raw  []byte // as it came, with the blank line that ends it
	Name string // of an "event:" line; mostly ""
	Data []byte // the data lines joined by line feeds; nil for a comment
}

// Done reports whether the event is the normal end of a stream.
func (e Event) Done() bool { return string(e.Data) == "[DONE]" }

// EventReader splits a stream into events. Lines end with LF or CRLF; a lone CR
// is part of its line, because no model server ends lines with it and waiting
// for the byte after it would delay every event.
type EventReader struct {
	r      io.Reader
	max    int
	buf    []byte
	at     int // buf[:at] was returned by the last Next
	seen   int // no line feed in buf[at:seen] ends an event
	err    error
	joined []byte
}

// NewEventReader reads events of at most max bytes each (0: MaxEvent) from r.
func NewEventReader(r io.Reader, max int) *EventReader {
	if max <= 0 {
		max = MaxEvent
	}
	return &EventReader{r: r, max: max}
}

// Next returns the next event. At the stream's end it returns io.EOF if the last
// event was whole and io.ErrUnexpectedEOF if it was not.
func (e *EventReader) Next() (Event, error) {
	for {
		if n := e.end(); n > 0 {
			raw := e.buf[e.at : e.at+n]
			e.at += n
			e.seen = e.at
			if n > e.max {
				return Event{}, fmt.Errorf("%w of %d bytes", ErrEventTooLong, e.max)
			}
			return e.parse(raw), nil
		}
		if len(e.buf)-e.at > e.max {
			return Event{}, fmt.Errorf("%w of %d bytes", ErrEventTooLong, e.max)
		}
		if e.err != nil {
			if e.err == io.EOF && len(bytes.Trim(e.buf[e.at:], "\r\n")) > 0 {
				return Event{}, io.ErrUnexpectedEOF
			}
			return Event{}, e.err
		}
		e.fill()
	}
}

// fill reads once. What was returned is dropped first.
func (e *EventReader) fill() {
	if e.at > 0 {
		e.buf = e.buf[:copy(e.buf, e.buf[e.at:])]
		e.seen -= e.at
		e.at = 0
	}
	const step = 16 << 10 // what one read of a stream brings at most
	if cap(e.buf)-len(e.buf) < step {
		grown := make([]byte, len(e.buf), 2*cap(e.buf)+step)
		copy(grown, e.buf)
		e.buf = grown
	}
	for range 100 { // a reader that gives nothing this often is broken
		var n int
		n, e.err = e.r.Read(e.buf[len(e.buf):cap(e.buf)])
		e.buf = e.buf[:len(e.buf)+n]
		if n > 0 || e.err != nil {
			return
		}
	}
	e.err = io.ErrNoProgress
}

// end returns the length of the first event in buf[at:], or 0.
func (e *EventReader) end() int {
	i := e.seen
	for {
		n := bytes.IndexByte(e.buf[i:], '\n')
		if n < 0 {
			e.seen = len(e.buf)
			return 0
		}
		i += n + 1
		line := e.buf[e.at:i]
		if bytes.HasSuffix(line, []byte("\n\n")) || bytes.HasSuffix(line, []byte("\n\r\n")) || len(line) <= 2 && len(bytes.Trim(line, "\r\n")) == 0 {
			return i - e.at
		}
	}
}

func (e *EventReader) parse(raw []byte) Event {
	ev := Event{Raw: raw}
	lines := 0
	for rest := raw; len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			ev.Name = string(value)
		case "data":
			lines++
			switch lines {
			case 1: // nearly always the only one: no copy
				ev.Data = value[:len(value):len(value)]
			case 2:
				e.joined = append(append(append(e.joined[:0], ev.Data...), '\n'), value...)
				ev.Data = e.joined
			default:
				e.joined = append(append(e.joined, '\n'), value...)
				ev.Data = e.joined
			}
		}
	}
	return ev
}
