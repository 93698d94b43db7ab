package engine

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// ErrHaveGone says that the cache does not hold the first Request.Have positions
// any more: ask Loop.Cached again and admit with what it says now. It is Admit's
// answer; rarely, with a sliding window that moved on meanwhile or after a failed
// library call, it comes as Result.Err.
var ErrHaveGone = errors.New("the prefix promised by have is no longer in the cache")

// minPrefix is the least number of tokens worth a fork, or C if that is less. Less
// is computed faster than it pays to give up another cached sequence's id for.
const minPrefix = 16

func (l *Loop) least() int32 { return int32(min(minPrefix, l.info.Chunk)) }

// Cache counts what is kept of sequences that ended, and what it was good for.
type Cache struct {
	Cells   int    // KV cells that only cached sequences have
	Seqs    int    // cached sequences
	Hits    uint64 // sequences that started from another's KV
	Reused  uint64 // prompt tokens they did not compute or import
	Evicted uint64 // cells given up for others
}

// Cache returns the cache's gauges and counters.
func (l *Loop) Cache() Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cache
	c.Cells, c.Seqs = l.ledger.cached, len(l.ledger.tracks)-l.ledger.live
	return c
}

// Cached returns how many leading tokens of a prompt the cache holds: what
// Request.Have may be. It is a multiple of C and leaves at least one position
// to travel before the last token. Nothing is pinned: Admit does that.
func (l *Loop) Cached(tokens []Token) int {
	if l.cfg.NoPrefixCache || len(tokens) < 2 {
		return 0
	}
	c := l.info.Chunk
	limit := (len(tokens) - 2) / c * c
	if limit == 0 {
		return 0
	}
	marks := marksOf(tokens, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, p := l.longest(tokens, marks, int32(limit), int32(c))
	return int(p)
}

// FlushCache drops, at the next step, what is cached and not promised to an
// admitted request. It does not wait.
func (l *Loop) FlushCache() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush = true
	l.poke()
}

// marksOf hashes the first c, 2c, … tokens. Each hash covers all before it, so
// that equal hashes at one place mean equal prefixes, and a binary search finds
// where two prompts part. Tokens are compared afterwards all the same.
func marksOf(tokens []Token, c int) []uint64 {
	marks := make([]uint64, 0, len(tokens)/c)
	h := uint64(0)
	for p := c; p <= len(tokens); p += c {
		part := tokens[p-c : p]
		h = xxh3.HashSeed(unsafe.Slice((*byte)(unsafe.Pointer(&part[0])), 4*c), h)
		marks = append(marks, h)
	}
	return marks
}

// common returns how many of the first limit tokens two prompts share. a and b
// are their marks, of every c tokens.
func common(x, y []Token, a, b []uint64, c, limit int) int {
	limit = min(limit, len(x), len(y))
	lo, hi := 0, min(len(a), len(b), limit/c) // the first lo marks are equal
	for lo < hi {
		if m := (lo + hi + 1) / 2; a[m-1] == b[m-1] {
			lo = m
		} else {
			hi = m - 1
		}
	}
	for i := range lo * c {
		if x[i] != y[i] { // a hash collision
			return i
		}
	}
	n := lo * c
	for n < limit && x[n] == y[n] {
		n++
	}
	return n
}

// longest returns the track that shares most of the prompt's first limit
// positions and can be continued there, and how many: a multiple of grain. Called
// with mu held.
func (l *Loop) longest(tokens []Token, marks []uint64, limit, grain int32) (best *track, p int32) {
	for _, t := range l.ledger.tracks {
		if t.id == noID {
			continue
		}
		n := min(limit, t.known)
		if n <= p {
			continue
		}
		n = int32(common(tokens, t.tokens, marks, t.marks, l.info.Chunk, int(n))) / grain * grain
		if n > p && n >= l.least() && l.continues(t, n) {
			best, p = t, n
		} else if n == p && best != nil && best.seq == nil && t.seq == nil && t.used > best.used {
			best = t
		}
	}
	return best, p
}

// continues says whether the layout lets a sequence go on from position p of t.
func (l *Loop) continues(t *track, p int32) bool {
	switch w := int32(l.info.Window); {
	case w == 0:
		return true
	case w < 0:
		return t.seq == nil && p == t.known
	default:
		return t.kept <= max(0, p-w+1) // position p sees p−w+1 … p
	}
}

// publish tells other goroutines' lookups what the live sequences have by now.
func (l *Loop) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.live {
		if !s.over && s.placed() {
			s.track.known = min(s.pos, int32(len(s.req.Tokens)))
		}
	}
}

// watchWindows notes which positions the window layers still have: the library
// overwrites those outside a sequence's window when it needs cells.
func (l *Loop) watchWindows() {
	if l.info.Window <= 0 || l.cfg.NoPrefixCache {
		return
	}
	l.mu.Lock()
	l.watched = append(l.watched[:0], l.ledger.tracks...)
	l.mu.Unlock()
	for _, t := range l.watched {
		if t.id == noID { // only this goroutine changes it
			continue
		}
		if k := l.backend.Kept(t.id); k != t.kept {
			l.mu.Lock()
			t.kept = k
			l.mu.Unlock()
		}
	}
}

// promise finds the track that an admission needs: one that has what Have says,
// or that of the sequence it comes after. Called with mu held.
func (l *Loop) promise(s *Seq) error {
	switch r := s.req; {
	case r.After != nil:
		t := r.After.track
		if r.After.over && (t.id == noID || t.known < s.end) {
			return fmt.Errorf("the sequence whose prompt it shares: %w", ErrEnded)
		}
		s.from = t
	case r.Have > 0:
		if l.cfg.NoPrefixCache {
			return ErrHaveGone
		}
		if s.from, _ = l.longest(r.Tokens, s.marks, r.Have, r.Have); s.from == nil {
			return ErrHaveGone
		}
	}
	return nil
}
