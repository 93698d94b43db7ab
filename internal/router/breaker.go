package router

import "time"

// breaker keeps requests from a worker that fails them. Failures charged to the
// worker in a row open it; after a pause one trial is let through, whose success
// closes it and whose failure doubles the pause. What is neither, an abort or a
// client's error, only gives a trial back. The workers' lock guards it.
type breaker struct {
	failures int
	pause    time.Duration // 0: closed
	until    time.Time     // open until then
	trial    bool          // half open, and its one trial is out
}

// allows reports whether a request may be sent now.
func (b *breaker) allows(now time.Time) bool {
	return b.pause == 0 || !b.trial && !now.Before(b.until)
}

// took says that a request is sent.
func (b *breaker) took() { b.trial = b.pause > 0 }

func (b *breaker) success() { *b = breaker{} }

func (b *breaker) neutral() { b.trial = false }

func (b *breaker) failure(now time.Time) {
	b.failures++
	switch {
	case b.trial || b.pause > 0 && !now.Before(b.until):
		b.pause = min(2*b.pause, breakerMost)
	case b.pause == 0 && b.failures >= breakerFailures:
		b.pause = breakerFirst
	default: // a request sent before it opened: nothing new
		return
	}
	b.trial = false
	b.until = now.Add(b.pause)
}

// state names the breaker's state as metrics and /health show it.
func (b *breaker) state(now time.Time) string {
	switch {
	case b.pause == 0:
		return "closed"
	case now.Before(b.until):
		return "open"
	}
	return "half_open"
}
