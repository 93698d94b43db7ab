package router

import (
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// pool is all workers under one lock: a pair is counted in flight in the
// moment it is selected, so that a burst does not land on one worker.
type pool struct {
	mu       sync.Mutex
	prefills []*worker
	decodes  []*worker
	turn     int // rotates among equals
}

// pair is the two workers of one attempt.
type pair struct{ prefill, decode *worker }

// pick selects the usable pair with the fewest requests in flight, on workers
// other than those in not if there are such, and counts it.
func (p *pool) pick(now time.Time, not map[*worker]bool) (pair, *room.Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	pw, dw := p.least(p.prefills, now, not), p.least(p.decodes, now, not)
	if pw == nil || dw == nil {
		var why string
		for _, w := range p.all() {
			if u := w.unusable(now); u != "" {
				why += "; " + string(w.role) + " " + w.url + ": " + u
			}
		}
		return pair{}, room.Because(room.NoPair, "no usable pair of workers%s", why)
	}
	for _, w := range []*worker{pw, dw} {
		w.inFlight++
		w.breaker.took()
	}
	return pair{pw, dw}, nil
}

func (p *pool) least(workers []*worker, now time.Time, not map[*worker]bool) *worker {
	var best *worker
	for i := range workers {
		w := workers[(i+p.turn)%len(workers)]
		if w.unusable(now) != "" {
			continue
		}
		if best == nil || not[best] && !not[w] || not[best] == not[w] && w.inFlight < best.inFlight {
			best = w
		}
	}
	return best
}

func (p *pool) all() []*worker {
	return append(append([]*worker(nil), p.prefills...), p.decodes...)
}

// verdict is what one attempt says about a worker.
type verdict uint8

const (
	neutral verdict = iota // an abort, a client's error, or somebody else's fault
	good
	guilty
)

// release ends a worker's part in an attempt.
func (p *pool) release(w *worker) {
	p.mu.Lock()
	w.inFlight--
	p.mu.Unlock()
}

// judge tells a worker's breaker.
func (p *pool) judge(w *worker, v verdict, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch v {
	case good:
		w.breaker.success()
	case guilty:
		w.breaker.failure(now)
	default:
		w.breaker.neutral()
	}
}

// draining marks a worker that said so itself before its health did.
func (p *pool) draining(w *worker) {
	p.mu.Lock()
	w.info.Draining = true // until its next /get_server_info says otherwise
	p.mu.Unlock()
}

// load counts the requests in flight.
func (p *pool) load(w *worker) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.inFlight
}
