package engine

import (
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// place gives every sequence that has none yet a sequence id, and the KV of the
// longest prefix that the cache or another sequence has. One that finds another
// computing more of its prompt waits for it instead of computing the same.
//
// That cannot lock up: only placed sequences are waited for, a placed one never
// waits, and one that stops computing (paused, ended) is waited for no longer.
func (l *Loop) place() (did bool) {
	l.waited = false
	for _, s := range l.live {
		if s.over || s.placed() || s.phase == aside {
			continue
		}
		switch {
		case s.req.After != nil:
			did = l.placeAfter(s, s.req.After) || did
		case s.req.KV == Imported:
			l.placeImported(s)
			did = true
		default:
			did = l.placeComputed(s) || did
		}
	}
	return did
}

func (l *Loop) placeComputed(s *Seq) bool {
	switch {
	case l.cfg.NoPrefixCache || s.req.Export && l.info.Window < 0:
		l.begins(s, nil, 0)
		return true
	case s.req.Export && l.info.Window > 0:
		return l.placeWindowed(s)
	}
	limit := s.end
	if s.req.PromptLogprobs > 0 { // these need their rows computed
		limit = max(min(limit, s.req.PromptFrom-1), 0)
	}
	l.mu.Lock()
	from, p := l.longest(s.req.Tokens, s.marks, limit, 1)
	l.mu.Unlock()
	if s.req.PromptLogprobs > 0 {
		l.begins(s, from, p)
		return true
	}
	if lead := l.leader(s, p); lead != nil {
		if !s.due.IsZero() && (lead.due.IsZero() || s.due.Before(lead.due)) {
			lead.due = s.due // who waits for it lends it its deadline
		}
		return false
	}
	l.begins(s, from, p)
	return true
}

// spareWait is how long a sequence that could start from another's KV waits to hear
// what the other side has: a hand-over's READY takes milliseconds if decode has room,
// and if it has none, nobody waits for this prompt.
const spareWait = 250 * time.Millisecond

// placeWindowed places a sequence that exports, of a model with a sliding window. It
// can start from another's KV only if the positions that the window has left behind
// need not be exported.
func (l *Loop) placeWindowed(s *Seq) bool {
	l.mu.Lock()
	from, p := l.longest(s.req.Tokens, s.marks, s.end, 1)
	spared := s.spared
	l.mu.Unlock()
	if spared == SparedUnknown && p >= int32(l.info.Chunk) {
		if wait := spareWait - l.now().Sub(s.admitted); wait > 0 {
			if !l.waited { // the first in line was admitted first
				l.waited = true
				l.later.Reset(wait)
			}
			return false
		}
	}
	if from != nil && from.kept > spared {
		from, p = nil, 0
	}
	l.begins(s, from, p)
	return true
}

// leader returns a sequence that is computing prompt tokens which s needs too
// and which are not there yet: at least half a chunk more than p.
func (l *Loop) leader(s *Seq, p int32) (lead *Seq) {
	if l.info.Window < 0 {
		return nil
	}
	best := p + max(int32(l.info.Chunk)/2, l.least()) - 1
	for _, o := range l.live {
		if o == s || o.over || !o.computes() || l.canceled(o) {
			continue
		}
		n := min(s.end, o.end)
		if n <= best {
			continue
		}
		n = int32(common(s.req.Tokens, o.req.Tokens, s.marks, o.marks, l.info.Chunk, int(n)))
		if n > best && n > o.pos {
			lead, best = o, n
		}
	}
	return lead
}

// placeAfter starts s from the whole prompt of the sequence it was admitted
// after, once that is there. Until then they share one fate.
func (l *Loop) placeAfter(s, lead *Seq) bool {
	if !lead.over && lead.pos < lead.end {
		return false
	}
	from := l.unpin(s)
	if lead.pos < s.end || !from.placed() {
		l.finish(s, FinishFailed, fmt.Errorf("the sequence whose prompt it shares: %w", ErrEnded))
		return true
	}
	if l.begins(s, from, s.end); s.pos < s.end && !s.over {
		// The window moved on, or is too full: the whole prompt is its own, then.
		l.mu.Lock()
		ok := l.ledger.whole(s.track)
		l.mu.Unlock()
		if !ok {
			l.finish(s, FinishFailed, fmt.Errorf("its prompt cannot be shared: %w", ErrNoCells))
		}
	}
	return true
}

func (l *Loop) placeImported(s *Seq) {
	l.begins(s, l.unpin(s), s.req.Have)
	if !s.over && s.pos != s.req.Have {
		l.finish(s, FinishFailed, ErrHaveGone)
	}
}

// unpin takes back the promise of Admit: what s starts from is used now.
func (l *Loop) unpin(s *Seq) *track {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := s.from
	if from != nil {
		from.pins--
		s.from = nil
	}
	return from
}

// begins gives s an id and the first p positions of a track, or none if they
// cannot be had. It takes a cached track over where that loses nothing or there
// is no other way, else it forks.
func (l *Loop) begins(s *Seq, from *track, p int32) {
	fork, adopt, whole := false, false, false
	if from != nil && from.placed() && p > 0 {
		l.mu.Lock()
		adopt, whole = from.seq == nil && from.pins == 0, p == from.known
		l.mu.Unlock()
		fork = l.backend.CanFork(from.id, p)
		switch w := int32(l.info.Window); {
		case w < 0:
			adopt = adopt && whole
		case w > 0:
			adopt = adopt && l.backend.Kept(from.id) <= max(0, p-w+1)
		}
	}
	if adopt && (whole || !fork || !l.spare(from)) {
		l.adopt(s, from, p)
		return
	}
	if !fork || !l.spare(from) {
		from, p = nil, 0
	}
	if !l.spare(nil) {
		panic("engine ledger: no sequence id for an admitted sequence") // there are at least as many as slots
	}
	l.mu.Lock()
	n := len(l.ledger.ids)
	slot := l.ledger.ids[n-1]
	l.ledger.ids, s.track.id = l.ledger.ids[:n-1], slot
	l.mu.Unlock()
	if from != nil {
		if err := l.backend.Fork(from.id, slot, p); err != nil {
			l.log.Warn("fork failed", "rid", s.req.RID, "positions", p, "err", err)
			l.backend.Drop(slot)
			from, p = nil, 0
		}
	}
	l.begun(s, from, p)
}

// adopt makes a cached track's sequence id, cut at p, the one of s.
func (l *Loop) adopt(s *Seq, from *track, p int32) {
	if p < from.known {
		l.backend.Truncate(from.id, p)
	}
	l.mu.Lock()
	l.ledger.graft(s.track, from, p)
	s.track.id, s.track.kept, from.id = from.id, from.kept, noID
	l.ledger.remove(from)
	l.mu.Unlock()
	l.begun(s, nil, p)
}

// begun notes that s has its first p positions; if they are shared, with from.
func (l *Loop) begun(s *Seq, from *track, p int32) {
	s.slot, s.pos, s.res.Cached = s.track.id, p, int(p)
	l.mu.Lock()
	if from != nil {
		l.ledger.graft(s.track, from, p)
		s.track.kept = from.kept
	}
	s.track.known = p
	if p > 0 {
		l.cache.Hits++
		l.cache.Reused += uint64(p)
	}
	l.mu.Unlock()
	if p > 0 {
		l.signalFreed() // what it shares it no longer reserves
		l.begin(s)
		l.export(s)
	}
}

// spare makes sure that there is a free sequence id, if it must by evicting a
// cached track other than not.
func (l *Loop) spare(not *track) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ledger.ids) == 0 {
		if t := l.ledger.oldest(not); t != nil {
			l.evict(t)
		}
	}
	return len(l.ledger.ids) > 0
}

// evict drops a cached track. Called with mu held, which it gives up during the
// library's call: the track is out of everyone's sight by then, and its sequence
// id goes to nobody, because this goroutine hands them out.
func (l *Loop) evict(t *track) {
	slot, before := t.id, l.ledger.cached
	l.ledger.remove(t)
	l.cache.Evicted += uint64(before - l.ledger.cached)
	l.mu.Unlock()
	l.backend.Drop(slot)
	l.mu.Lock()
}

// makeRoom evicts until every reservation has real cells. It reports false when
// only what new arrivals pinned is left: they must be placed first.
func (l *Loop) makeRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.flush || l.cfg.NoPrefixCache { // without a cache, what was kept for one that came after goes with its last pin
		t := l.ledger.oldest(nil)
		if t == nil {
			l.flush = false
			break
		}
		l.evict(t)
	}
	for t := l.redundant(); t != nil; t = l.redundant() {
		l.evict(t)
	}
	for l.ledger.over() > 0 {
		t := l.ledger.oldest(nil)
		if t == nil {
			return len(l.arrivals) == 0
		}
		// By chunk from the end, where what is left can still be continued.
		c := int32(l.info.Chunk)
		cut := max(t.leaf.p1-int32(l.ledger.over()), 0) / c * c
		if l.info.Window != 0 || cut <= t.leaf.p0 || cut < l.least() {
			l.evict(t)
			continue
		}
		l.cache.Evicted += uint64(t.leaf.p1 - cut)
		l.ledger.resize(t, cut)
		t.known, t.tokens, t.marks = cut, t.tokens[:cut], t.marks[:cut/c]
		l.mu.Unlock()
		l.backend.Truncate(t.id, cut)
		l.mu.Lock()
	}
	return true
}

// redundant returns a cached track all of whose positions others have too.
func (l *Loop) redundant() *track {
	if l.info.Window != 0 { // it may have a window that the others left behind
		return nil
	}
	for _, t := range l.ledger.tracks {
		if t.seq == nil && t.pins == 0 && t.leaf.len() == 0 && t.leaf.up != nil && t.leaf.up.users > 1 {
			return t
		}
	}
	return nil
}

// keep makes a cached track of an ended sequence's, or removes it if it is not
// worth it. It returns the sequence id that the backend must drop, or noID.
// Called with mu held.
func (l *Loop) keep(s *Seq) (drop id.SeqID) {
	t := s.track
	if s.from != nil {
		s.from.pins--
		s.from = nil
	}
	worth := t.pins > 0 || (!l.cfg.NoPrefixCache && !l.closed && s.pos >= l.least())
	if !t.placed() || s.broken || !worth {
		drop = t.id
		l.ledger.remove(t)
		return drop
	}
	t.tokens = append(append(make([]Token, 0, len(s.req.Tokens)+len(s.made)), s.req.Tokens...), s.made...)[:s.pos]
	t.marks = marksOf(t.tokens, l.info.Chunk)
	t.known = s.pos
	l.ledger.retire(t, s.pos)
	return noID
}
