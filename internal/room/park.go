package room

import "github.com/tandem-llm/tandem/internal/id"

// ridPark keeps aborts that came before their request, oldest first.
type ridPark struct {
	cap   int
	order []parkedRID
	cause map[attempt]*Cause
}

// attempt names one attempt of a request; with room 0, every one.
type attempt struct {
	rid  id.RID
	room id.Room
}

type parkedRID struct {
	attempt
	until Mono
}

func newRIDPark(capacity int) ridPark {
	return ridPark{cap: capacity, cause: make(map[attempt]*Cause)}
}

// put parks an abort until a time; the first cause stays. It returns
// how many older ones had to go.
func (p *ridPark) put(a attempt, c *Cause, until Mono) (dropped int) {
	if _, there := p.cause[a]; there {
		return 0
	}
	p.cause[a] = c
	p.order = append(p.order, parkedRID{a, until})
	for len(p.order) > p.cap {
		delete(p.cause, p.order[0].attempt)
		p.order = p.order[1:]
		dropped++
	}
	return dropped
}

// take returns and removes the abort parked for an attempt, nil if none.
func (p *ridPark) take(a attempt) *Cause {
	c := p.cause[a]
	delete(p.cause, a) // its place in order is skipped when it comes up
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
		delete(p.cause, p.order[0].attempt)
		p.order = p.order[1:]
	}
}
