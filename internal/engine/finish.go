package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// finish ends s once: it frees its cells, gives queued buffers back, and calls
// Done. A sequence that somebody cancelled is canceled, whatever else went
// wrong: the cancel came first, and an interrupted batch fails because of it.
func (l *Loop) finish(s *Seq, why Finish, err error) {
	if s.over {
		return
	}
	s.chooser.close()

	l.mu.Lock()
	s.over = true
	queued := s.imports
	s.imports = nil
	if s.cancel != nil && (why == FinishFailed || why == FinishCanceled) {
		why, err = FinishCanceled, s.cancel
	} else if l.cause != nil && why == FinishFailed {
		why, err = FinishCanceled, l.cause // interrupted by the shutdown
	}
	drop, saved := l.keep(s), l.forget(s)
	l.mu.Unlock()
	if saved != nil {
		saved.Release()
	}
	if drop != noID {
		l.backend.Drop(drop)
	} else if s.placed() { // cancelled while a call computed more
		l.backend.Truncate(s.slot, s.pos)
	}

	s.res.Finish, s.res.Err = why, err
	now := l.now()
	if s.begun.IsZero() {
		s.res.Waited = now.Sub(s.admitted)
	} else if s.res.Waited = s.begun.Sub(s.admitted); !s.ready.IsZero() {
		s.res.Prefill = s.ready.Sub(s.begun)
	}
	for _, c := range queued {
		e := err
		if e == nil {
			e = ErrEnded
		}
		l.guard(s, func() { s.h.Imported(c.p0, c.p1, e) })
	}
	l.enterPhase(s, ended)
	l.guard(s, func() { s.h.Done(s.res) })
	l.signalFreed()
}

func (l *Loop) signalFreed() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// sweep forgets sequences that ended in this step.
func (l *Loop) sweep() {
	l.live = slices.DeleteFunc(l.live, func(s *Seq) bool { return s.over })
}

// begin notes the first work on s.
func (l *Loop) begin(s *Seq) {
	if s.begun.IsZero() {
		s.begun = l.now()
		l.enterPhase(s, prefilling)
	}
}

func (l *Loop) enterPhase(s *Seq, p phase) {
	if s.phase == p {
		return
	}
	l.load[s.phase].Add(-1)
	s.phase = p
	l.load[p].Add(1)
}

// errPanic is wrapped by the error of a sequence whose handler panicked.
var errPanic = errors.New("handler panicked")

// guard calls into a Handler. A panic there ends its own sequence, not the loop.
func (l *Loop) guard(s *Seq, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			l.panics.Add(1)
			l.log.Error("a handler panicked", "rid", s.req.RID, "room", s.req.Room, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanic, r)
		}
	}()
	f()
	return nil
}

// assert compares the ledger with the sequences alive. It is cheap, and a wrong
// ledger means that admissions lie from now on, so it is always on.
func (l *Loop) assert() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wrong := l.ledger.audit(l.step, l.info.Seqs); wrong != "" {
		panic("engine ledger: " + wrong)
	}
	if n := len(l.live) + len(l.arrivals); n != l.ledger.live {
		panic(fmt.Sprintf("engine ledger: %d live sequences, %d counted", n, l.ledger.live))
	}
}
