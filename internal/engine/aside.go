package engine

import (
	"cmp"
	"slices"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// Stater is a Backend that can put a whole sequence's state into memory and take
// it back exactly. The bytes never leave the process: they are trusted.
type Stater interface {
	// StateBytes returns how much SaveState needs for seq.
	StateBytes(seq id.SeqID) int
	// SaveState writes the state of seq to dst, memory of an Arena.
	SaveState(seq id.SeqID, dst []byte) error
	// LoadState makes seq, which is empty, the sequence that was saved, of so many
	// positions. On error seq is empty.
	LoadState(seq id.SeqID, positions int32, src []byte) error
}

// reserve returns the cells to reserve for r at admission.
func (l *Loop) reserve(r *Request) int32 {
	if r.Gen == nil || !l.cfg.Overcommit {
		return int32(r.Cells())
	}
	return int32(len(r.Tokens) + min(r.Gen.MaxTokens, l.cfg.Headroom))
}

// grow makes sure that every sequence that decodes has a cell for its next token.
// With Overcommit there may be none: then the running sequence with the latest
// deadline is set aside, which may be the one that asked. The earliest deadline
// always goes on, and a sequence alone always fits: so all end.
func (l *Loop) grow() (did bool) {
	if !l.cfg.Overcommit {
		return false
	}
	for _, s := range l.live {
		for !s.over && s.decodes() && s.pos >= s.track.leaf.p1 {
			n := min(int32(l.cfg.Headroom), int32(s.req.Cells())-s.track.leaf.p1)
			l.mu.Lock()
			fits := int(n) <= l.ledger.total-l.ledger.held
			if fits {
				l.ledger.resize(s.track, s.track.leaf.p1+n)
			}
			l.mu.Unlock()
			if !fits {
				l.setAside(l.latest(s))
			}
			did = true
		}
	}
	return did
}

// latest returns the decoding sequence whose deadline is last, or s.
func (l *Loop) latest(s *Seq) *Seq {
	worst := s
	for _, o := range l.live {
		l.mu.Lock()
		pinned := o.track.pins > 0
		l.mu.Unlock()
		if o.over || o.phase != decoding || !o.placed() || pinned || o.req.PromptLogprobs > 0 {
			continue
		}
		if (ask{due: worst.due}).before(ask{due: o.due}) < 0 {
			worst = o
		}
	}
	return worst
}

// setAside gives up the cells of s; its state waits in host memory. Without
// memory for it, its tokens are computed again later.
func (l *Loop) setAside(s *Seq) {
	if st, ok := l.backend.(Stater); ok && l.cfg.Aside != nil {
		if lease, err := l.cfg.Aside.Alloc(st.StateBytes(s.slot), "aside "+string(s.req.RID)); err == nil {
			l.enter(int(s.pos), 0)
			err = st.SaveState(s.slot, lease.Bytes())
			l.leave()
			if s.saved = lease; err != nil {
				l.log.Warn("state not saved: computed again later", "rid", s.req.RID, "err", err)
				s.saved.Release()
				s.saved = nil
			}
		}
	}
	slot := s.slot
	l.mu.Lock()
	l.ledger.empty(s.track)
	l.asides++
	l.mu.Unlock()
	l.backend.Drop(slot)
	l.enterPhase(s, aside)
}

// comeBack resumes sequences that were set aside, the earliest deadline first,
// as long as there are cells for them and some more.
func (l *Loop) comeBack() (did bool) {
	if l.load[aside].Load() == 0 {
		return false
	}
	var queue []*Seq
	for _, s := range l.live {
		if s.phase == aside && !s.over {
			queue = append(queue, s)
		}
	}
	slices.SortStableFunc(queue, func(a, b *Seq) int {
		return cmp.Or(ask{due: a.due}.before(ask{due: b.due}), a.admitted.Compare(b.admitted))
	})
	for _, s := range queue {
		need := min(s.pos+int32(l.cfg.Headroom), int32(s.req.Cells()))
		l.mu.Lock()
		fits := int(need) <= l.ledger.total-l.ledger.held
		if fits {
			l.ledger.resize(s.track, need)
			l.asides--
		}
		l.mu.Unlock()
		if !fits {
			return did // nobody overtakes
		}
		did = true
		l.resume(s)
	}
	return did
}

func (l *Loop) resume(s *Seq) {
	if l.settle(); s.over { // cancelled meanwhile
		return
	}
	if !l.spare(nil) {
		panic("engine ledger: no sequence id for a sequence set aside")
	}
	l.signalFreed() // what waits for admission may come in again
	l.mu.Lock()
	n := len(l.ledger.ids)
	s.slot, l.ledger.ids = l.ledger.ids[n-1], l.ledger.ids[:n-1]
	s.track.id = s.slot
	l.mu.Unlock()
	saved := s.saved
	s.saved = nil
	if saved != nil {
		l.enter(int(s.pos), 0)
		err := l.backend.(Stater).LoadState(s.slot, s.pos, saved.Bytes())
		l.leave()
		saved.Release()
		if err == nil {
			l.enterPhase(s, decoding)
			return
		}
		l.log.Warn("state not loaded: computing again", "rid", s.req.RID, "err", err)
	}
	s.redo, s.end, s.pos = true, s.pos, 0
	l.enterPhase(s, prefilling)
}

// forget releases the memory of a sequence that ends while set aside. Called with
// mu held.
func (l *Loop) forget(s *Seq) (saved *kv.Lease) {
	if s.phase == aside {
		l.asides--
	}
	saved, s.saved = s.saved, nil
	return saved
}
