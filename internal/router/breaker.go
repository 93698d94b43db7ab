package router

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// breaker keeps requests from a worker, or from a pair, that fails them. Failures
// charged to it in a row open it; after a pause one trial is let through, whose
// success closes it and whose failure doubles the pause. What is neither, an abort
// or a client's error, only gives a trial back. Failures that are no longer recent
// are forgotten. The workers' lock guards it.
//
// A request counts only in the epoch it was sent in: one that was on its way when the
// breaker opened, or when the worker's process was replaced, says nothing of now. It
// neither closes the breaker by a late success nor takes the place of the trial.
type breaker struct {
	most     int // failures in a row that open it; 0: breakerFailures
	failures int
	last     *room.Cause   // of the last failure
	at       time.Time     // ... and when it was
	pause    time.Duration // 0: closed
	until    time.Time     // open until then
	trial    bool          // half open, and its one trial is out
	epoch    int           // counts openings and new processes
}

// allows reports whether a request may be sent now.
func (b *breaker) allows(now time.Time) bool {
	return b.pause == 0 || !b.trial && !now.Before(b.until)
}

// took says that a request is sent, and returns the epoch that judge wants of it.
func (b *breaker) took() (epoch int) {
	b.trial = b.pause > 0
	return b.epoch
}

func (b *breaker) success() { *b = breaker{most: b.most, epoch: b.epoch} }

// renew forgets everything: what is asked from now on is another process.
func (b *breaker) renew() { *b = breaker{most: b.most, epoch: b.epoch + 1} }

func (b *breaker) neutral() { b.trial = false }

func (b *breaker) failure(now time.Time, cause *room.Cause) {
	if b.pause == 0 && now.Sub(b.at) > breakerMost {
		b.failures = 0
	}
	b.failures++
	b.last, b.at = cause, now
	switch {
	case b.trial || b.pause > 0 && !now.Before(b.until):
		b.pause = min(2*b.pause, breakerMost)
	case b.pause == 0 && b.failures >= cmp.Or(b.most, breakerFailures):
		b.pause = breakerFirst
	default: // a request sent before it opened: nothing new
		return
	}
	b.trial = false
	b.until = now.Add(b.pause)
	b.epoch++
}

// judge counts what one attempt says that was sent in an epoch.
func (b *breaker) judge(epoch int, v verdict, cause *room.Cause, now time.Time) {
	if epoch != b.epoch {
		return
	}
	switch v {
	case good:
		b.success()
	case guilty:
		b.failure(now, cause)
	default:
		b.neutral()
	}
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

// why says why nothing is let through: what a client is told, which is the last
// failure's code, and its detail, which names addresses.
func (b *breaker) why() reason {
	r := reason{text: fmt.Sprintf("left out after %d failures in a row", b.failures)}
	if b.last != nil {
		r.text += ", the last: " + string(b.last.Code)
		r.detail = b.last.Detail
	}
	return r
}
