package room

import "github.com/tandem-llm/tandem/internal/id"

// ridPark keeps aborts that came before their request, oldest first.
type ridPark struct {
	cap   int
	order []parkedRID
	cause map[id.RID]*Cause
}

type parkedRID struct {
	rid   id.RID
	until Mono
}

func newRIDPark(capacity int) ridPark {
	return ridPark{cap: capacity, cause: make(map[id.RID]*Cause)}
}

// put parks an abort until a time; the first cause for a rid stays. It returns
// how many older ones had to go.
func (p *ridPark) put(rid id.RID, c *Cause, until Mono) (dropped int) {
	if _, there := p.cause[rid]; there {
		return 0
	}
	p.cause[rid] = c
	p.order = append(p.order, parkedRID{rid, until})
	for len(p.order) > p.cap {
		delete(p.cause, p.order[0].rid)
		p.order = p.order[1:]
		dropped++
	}
	return dropped
}

// take returns and removes the abort parked for a rid, nil if none.
func (p *ridPark) take(rid id.RID) *Cause {
	c := p.cause[rid]
	delete(p.cause, rid) // its place in order is skipped when it comes up
	return c
}

func (p *ridPark) next() (Mono, bool) {
	if len(p.order) == 0 {
		return 0, false
	}
	return p.order[0].until, true
}

func (p *ridPark) sweep(now Mono) {
	for len(p.order) > 0 && p.order[0].until <= now {
		delete(p.cause, p.order[0].rid)
		p.order = p.order[1:]
	}
}
