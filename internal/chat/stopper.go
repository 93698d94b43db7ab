package chat

import "strings"

// Stopper cuts a text at the first of some stop strings, wherever the tokens'
// borders fall. Text that may be the beginning of one is held back.
type Stopper struct {
	stops   []string
	keep    bool
	held    string
	stopped bool
	matched string
}

// NewStopper returns a Stopper; empty stop strings are ignored.
func NewStopper(stops ...string) *Stopper {
	s := &Stopper{}
	for _, x := range stops {
		if x != "" {
			s.stops = append(s.stops, x)
		}
	}
	return s
}

// KeepStop makes the stop string part of the text that is shown.
func (s *Stopper) KeepStop() { s.keep = true }

// Matched returns the stop string that was reached, "" before.
func (s *Stopper) Matched() string { return s.matched }

// Push takes text and returns what may be shown, and whether a stop string was
// reached: then nothing follows.
func (s *Stopper) Push(text string) (shown string, stopped bool) {
	if s.stopped {
		return "", true
	}
	text = s.held + text
	s.held = ""
	cut := -1
	for _, x := range s.stops {
		if i := strings.Index(text, x); i >= 0 && (cut < 0 || i < cut) {
			cut, s.matched = i, x
		}
	}
	if cut >= 0 {
		s.stopped = true
		if s.keep {
			cut += len(s.matched)
		}
		return text[:cut], true
	}
	keep := 0
	for _, x := range s.stops {
		for n := min(len(x)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, x[:n]) {
				keep = n
				break
			}
		}
	}
	s.held = text[len(text)-keep:]
	return text[:len(text)-keep], false
}

// Flush returns what was held back, at the end of a text that reached no stop.
func (s *Stopper) Flush() string {
	if s.stopped {
		return ""
	}
	held := s.held
	s.held = ""
	return held
}
