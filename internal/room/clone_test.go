package room

import (
	"slices"

	"github.com/tandem-llm/tandem/internal/id"
)

// clone copies a book so that the two go on apart. Causes are shared, nobody
// writes to them. drops is where the copy counts what it ignores: the explorer
// reads Drop effects instead, and has millions of copies share one map.
func (b *Book) clone(drops map[string]uint64) *Book {
	c := *b
	c.out = nil
	c.drops = drops
	c.rooms = make(map[id.Room]*Record, len(b.rooms))
	for k, r := range b.rooms {
		q := *r
		q.exported = slices.Clone(r.exported)
		c.rooms[k] = &q
	}
	c.rids = make(map[id.RID]id.Room, len(b.rids))
	for k, v := range b.rids {
		c.rids[k] = v
	}
	c.parked.order = slices.Clone(b.parked.order)
	c.parked.cause = make(map[attempt]*Cause, len(b.parked.cause))
	for k, v := range b.parked.cause {
		c.parked.cause[k] = v
	}
	c.tombs = slices.Clone(b.tombs)
	c.strays = make(map[id.Incarnation][]id.Room, len(b.strays))
	for k, v := range b.strays {
		c.strays[k] = slices.Clone(v)
	}
	c.timers = slices.Clone(b.timers)
	return &c
}

// hash is a running 64-bit digest. Two states that differ have the same digest
// with a probability of 2⁻⁶⁴: among 10⁷ states, once in 400,000 runs.
type hash uint64

func (h hash) add(v uint64) hash {
	x := (uint64(h) ^ v) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return hash(x ^ x>>29)
}

func (h hash) flags(bits ...bool) hash {
	v := uint64(1)
	for _, b := range bits {
		v <<= 1
		if b {
			v |= 1
		}
	}
	return h.add(v)
}

func (h hash) text(s string) hash {
	for i := range len(s) {
		h = h.add(uint64(s[i]))
	}
	return h.add(uint64(len(s)) << 32)
}

func (h hash) cause(c *Cause) hash {
	if c == nil {
		return h.add(0)
	}
	return h.text(string(c.Code))
}

// digest covers what a record's future depends on, and no more. Times count from
// now. Since and timerAt show only in when something is due: the laws see to it
// that a timer is armed no later, and one that fires early changes nothing.
func (b *Book) digest(h hash, rm id.Room) hash {
	r := b.rooms[rm]
	if r == nil {
		return h.add(99)
	}
	h = h.add(uint64(r.State)).add(uint64(r.Peer)).add(uint64(r.Gen)).cause(r.Cause)
	h = h.flags(r.Freed, r.stopped, r.complete, r.RID == "")
	if at, ev, ok := b.due(r); ok {
		h = h.add(uint64(at - b.now)).add(uint64(ev))
	}
	if r.State.Terminal() {
		h = h.add(uint64(min(b.now-r.Since, Mono(b.limits.Ready)))) // what BoundTo asks
		if r.State == Success {
			h = h.add(uint64(r.imported)).add(r.sum) // what COMMIT says again
		}
		return h
	}
	h = h.add(uint64(r.Deadline - b.now)).add(uint64(len(r.exported))<<32 | uint64(r.discarded))
	h = h.add(uint64(r.Have)).add(uint64(r.Tokens)).add(uint64(r.Digest[0])).add(uint64(r.Window))
	h = h.add(uint64(r.held)<<32 | uint64(r.outstanding)).add(uint64(r.taken)<<32 | uint64(r.imported))
	h = h.add(uint64(r.ready.Tokens)).add(uint64(r.ready.Digest[0]))
	return h.add(uint64(r.published)<<32 | uint64(r.settled)).add(r.sum)
}
