package client

import (
	"fmt"
	"time"
)

// leastInWindow is how many pieces of text each stream must have while all run,
// so that its rate means something.
const leastInWindow = 8

// Rate returns the tokens per second of streams while all of them run: from the
// last stream's first token to the first stream's last one. Each stream counts
// from its own first piece of text in there to its own last, so that the edges
// cost none of them a token.
func Rate(streams []Sample) (float64, error) {
	var from, to time.Time
	for i := range streams {
		s := &streams[i]
		if len(s.Events) == 0 {
			return 0, fmt.Errorf("stream %d has no text", i)
		}
		first, last := s.Began.Add(s.Events[0].At), s.Began.Add(s.Events[len(s.Events)-1].At)
		if i == 0 || first.After(from) {
			from = first
		}
		if i == 0 || last.Before(to) {
			to = last
		}
	}
	total := 0.0
	for i := range streams {
		r, n := streams[i].rate(from, to)
		if n < leastInWindow {
			return 0, fmt.Errorf("stream %d has %d pieces of text while all %d streams run: generate more tokens", i, n, len(streams))
		}
		total += r
	}
	return total, nil
}

// rate returns the stream's tokens per second between its events in [from, to],
// and how many there are.
func (s *Sample) rate(from, to time.Time) (perSecond float64, n int) {
	bytes := 0
	for _, e := range s.Events {
		bytes += e.Bytes
	}
	var first, last time.Duration
	tokens := 0.0
	for _, e := range s.Events {
		if at := s.Began.Add(e.At); at.Before(from) || at.After(to) {
			continue
		}
		if n++; n == 1 {
			first = e.At
			continue
		}
		last = e.At
		if len(s.Events) == s.Generated {
			tokens++
		} else { // several tokens came at once, or a token is half a character
			tokens += float64(e.Bytes) / float64(bytes) * float64(s.Generated)
		}
	}
	if last <= first {
		return 0, n
	}
	return tokens / (last - first).Seconds(), n
}
