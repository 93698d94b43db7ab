package engine

import (
	"fmt"
	"slices"

	"github.com/tandem-llm/tandem/internal/id"
)

// ledger says who has which cells, slots and sequence ids. Loop.mu guards it.
//
// Cells are *held* when a live sequence reserved them, filled or not, and
// *cached* when only sequences that ended have them. A cell that several share
// counts once: positions are kept as stems, and a fork splits one. Admission
// looks at held alone (held ≤ total), because what is cached can go at any time;
// the loop evicts until held + cached ≤ total before it lets the backend fill a
// cell. So no reservation is ever short of real cells. A sequence is admitted
// for its whole reservation and gives back what it shares once it is placed:
// admission may refuse what sharing would have made fit, never the opposite.
type ledger struct {
	total  int
	held   int
	cached int
	slots  int        // sequences that may live at once
	live   int        // those that do
	ids    []id.SeqID // free ones, last first
	tracks []*track   // live and cached, in no order
	tick   uint64     // orders use, for LRU
}

// stem is a run of positions that the same tracks have. A path of stems leads
// from a track's leaf, which is its own, up to position 0.
type stem struct {
	up     *stem
	p0, p1 int32
	users  int    // tracks on whose path it is
	live   int    // those of them whose sequence lives
	seen   uint64 // the audit that counted it last
}

func (s *stem) len() int { return int(s.p1 - s.p0) }

// noID is the sequence id of a track that has none yet.
const noID id.SeqID = -1

// track is the cache's side of one sequence, alive or kept after its end.
type track struct {
	seq    *Seq // nil: cached
	id     id.SeqID
	leaf   *stem
	tokens []Token  // what positions [0, known) were computed from, and perhaps more
	marks  []uint64 // hashes of the first C, 2C, … tokens
	known  int32    // positions [0, known) are in the cache
	kept   int32    // the first position that every layer still has
	used   uint64   // tick of the last use
	pins   int      // admitted requests that will start from it
}

func (t *track) placed() bool { return t.id != noID }

func newLedger(cells, slots, ids int) ledger {
	g := ledger{total: cells, slots: slots}
	for s := ids - 1; s >= 0; s-- {
		g.ids = append(g.ids, id.SeqID(s))
	}
	return g
}

// admit reserves the cells of positions [from, cells) and a slot for s.
func (g *ledger) admit(s *Seq, from, cells int32) (*track, error) {
	n := int(cells - from)
	if n > g.total-g.held {
		return nil, fmt.Errorf("%w: %d asked for, %d of %d free", ErrNoCells, n, g.total-g.held, g.total)
	}
	if g.live == g.slots {
		return nil, ErrNoSlot
	}
	t := &track{seq: s, id: noID, tokens: s.req.Tokens, marks: s.marks,
		leaf: &stem{p0: from, p1: cells, users: 1, live: 1}}
	g.live++
	g.held += n
	g.tracks = append(g.tracks, t)
	g.touch(t)
	return t, nil
}

func (g *ledger) touch(t *track) {
	g.tick++
	t.used = g.tick
}

// graft makes t share positions [0, p) of from: its own begin at p. Held falls by
// what t had reserved for them, and cells that were only cached become held.
func (g *ledger) graft(t, from *track, p int32) {
	end := t.leaf.p1
	g.held -= t.leaf.len()
	t.leaf = &stem{up: from.split(p), p0: p, p1: end, users: 1, live: 1}
	g.held += t.leaf.len()
	for s := t.leaf.up; s != nil; s = s.up {
		s.users++
		if s.live++; s.live == 1 {
			g.cached -= s.len()
			g.held += s.len()
		}
	}
	g.touch(from)
}

// split returns the stem of t's path that ends at p, nil for 0. It makes one if
// p is within a stem, or at the end of the leaf, which must stay t's own.
func (t *track) split(p int32) *stem {
	s := t.leaf
	for s != nil && s.p0 >= p {
		s = s.up
	}
	if s == nil || (s.p1 == p && s != t.leaf) {
		return s
	}
	lower := &stem{up: s.up, p0: s.p0, p1: p, users: s.users, live: s.live}
	s.up, s.p0 = lower, p
	return lower
}

// resize moves the end of t's own positions, which frees or takes cells.
func (g *ledger) resize(t *track, p1 int32) {
	n := int(p1 - t.leaf.p1)
	if t.leaf.live > 0 {
		g.held += n
	} else {
		g.cached += n
	}
	t.leaf.p1 = p1
}

// whole reserves the positions before t's own, if there are cells for them: t
// could not share them after all.
func (g *ledger) whole(t *track) bool {
	n := int(t.leaf.p0)
	if t.leaf.up != nil || n > g.total-g.held {
		return false
	}
	g.held += n
	t.leaf.p0 = 0
	return true
}

// empty takes all positions and the sequence id from the track of a live sequence.
func (g *ledger) empty(t *track) {
	s := t.seq
	g.remove(t)
	*t = track{seq: s, id: noID, tokens: t.tokens, marks: t.marks, leaf: &stem{users: 1, live: 1}}
	g.live++
	g.tracks = append(g.tracks, t)
	g.touch(t)
}

// retire turns the track of a sequence that ended into a cached one, whose
// positions [0, p) stay.
func (g *ledger) retire(t *track, p int32) {
	g.resize(t, p)
	t.seq = nil
	g.live--
	for s := t.leaf; s != nil; s = s.up {
		if s.live--; s.live == 0 {
			g.held -= s.len()
			g.cached += s.len()
		}
	}
	g.touch(t)
}

// remove takes a track out. Its sequence id, if it has one, is free again.
func (g *ledger) remove(t *track) {
	for s := t.leaf; s != nil; s = s.up {
		alive := s.live > 0
		s.users--
		if t.seq != nil {
			s.live--
		}
		switch {
		case s.users == 0 && alive:
			g.held -= s.len()
		case s.users == 0:
			g.cached -= s.len()
		case alive && s.live == 0:
			g.held -= s.len()
			g.cached += s.len()
		}
	}
	if t.seq != nil {
		g.live--
		t.seq = nil
	}
	if t.id != noID {
		g.ids = append(g.ids, t.id)
		t.id = noID
	}
	i := slices.Index(g.tracks, t)
	g.tracks = slices.Delete(g.tracks, i, i+1)
	for _, o := range g.tracks {
		o.join()
	}
}

// join makes one stem of two that no fork tells apart any more.
func (t *track) join() {
	for s := t.leaf; s.up != nil; {
		if s.up.users == s.users {
			s.p0, s.up = s.up.p0, s.up.up
		} else {
			s = s.up
		}
	}
}

// over returns how many cells must be evicted before reservations are safe.
func (g *ledger) over() int { return max(g.held+g.cached-g.total, 0) }

// oldest returns the cached track that was used longest ago and that nobody
// pinned, other than not; nil if there is none.
func (g *ledger) oldest(not *track) *track {
	var best *track
	for _, t := range g.tracks {
		if t.seq == nil && t.pins == 0 && t != not && (best == nil || t.used < best.used) {
			best = t
		}
	}
	return best
}

// audit counts everything anew and says what does not add up, "" if all does.
func (g *ledger) audit(turn uint64, ids int) string {
	held, cached, live, placed := 0, 0, 0, 0
	for _, t := range g.tracks {
		if t.seq != nil {
			live++
		}
		if t.id != noID {
			placed++
		}
		if t.leaf.users != 1 || t.known > t.leaf.p1 {
			return fmt.Sprintf("sequence id %d has %d positions of %d, its leaf %d users", t.id, t.known, t.leaf.p1, t.leaf.users)
		}
		for s := t.leaf; s != nil; s = s.up {
			switch {
			case s.p0 > s.p1 || (s.up != nil && (s.up.p1 != s.p0 || s.up.users < s.users || s.up.live < s.live)):
				return fmt.Sprintf("positions [%d, %d) do not follow those before", s.p0, s.p1)
			case s.seen == turn:
			case s.live > 0:
				held += s.len()
			default:
				cached += s.len()
			}
			s.seen = turn
		}
	}
	if held != g.held || cached != g.cached || live != g.live || placed+len(g.ids) != ids || held > g.total {
		return fmt.Sprintf("%d cells held, sequences have %d; %d cached, tracks have %d; %d live, %d counted; %d sequence ids of %d",
			g.held, held, g.cached, cached, g.live, live, placed+len(g.ids), ids)
	}
	return ""
}
