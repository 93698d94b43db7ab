package router

import (
	"fmt"
	"slices"
	"strings"
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
	turn     int               // rotates among equals
	pairs    map[pair]*breaker // of pairs that failed; one success forgets them
}

// pair is the two workers of one attempt.
type pair struct{ prefill, decode *worker }

// epochs are those of the breakers that an attempt was let through by.
type epochs struct{ prefill, decode, pair int }

// pairState is one pair as /health shows it, if it is not used though both its
// workers are.
type pairState struct {
	Prefill string `json:"prefill"`
	Decode  string `json:"decode"`
	Reason  string `json:"reason"`
}

// unusable returns why no new room may go to these two together, nothing if one
// may. It says nothing about either alone.
func (p *pool) unusable(x pair, now time.Time) reason {
	a, b := x.prefill.info, x.decode.info
	switch {
	case a.Layout != "" && b.Layout != "" && a.Layout != b.Layout:
		return reason{text: fmt.Sprintf("their KV layouts differ: prefill has %s, decode has %s", layout(a), layout(b))}
	case a.Chunk != 0 && b.Chunk != 0 && a.Chunk != b.Chunk:
		return reason{text: fmt.Sprintf("their chunks differ: prefill has %d tokens, decode has %d", a.Chunk, b.Chunk)}
	}
	if br := p.pairs[x]; br != nil && !br.allows(now) {
		return br.why()
	}
	return reason{}
}

func layout(i serverInfo) string {
	if i.LayoutWords == "" {
		return i.Layout
	}
	return i.Layout + " (" + i.LayoutWords + ")"
}

// avoid is how little a request wants the workers of its earlier attempts: one that
// served it beside a worker which died may well be dying too, as machines fail whole.
// A pair without any of them is best, then the one with the least sum: two that were
// only tried before one that is to blame.
type avoid map[*worker]int

const (
	tried  = 1
	blamed = 3 // above both of a pair that were tried
)

// add counts one attempt that failed.
func (a avoid) add(x pair, blame *worker) {
	a[x.prefill], a[x.decode] = max(a[x.prefill], tried), max(a[x.decode], tried)
	if blame != nil {
		a[blame] = blamed
	}
}

// pick selects the usable pair with the fewest requests in flight that serves the
// model ("": any), of those that not wants least avoided, and counts it.
func (p *pool) pick(now time.Time, model string, not avoid) (pair, epochs, *room.Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	best, found := p.least(now, model, not)
	if !found {
		return pair{}, epochs{}, p.none(now, model)
	}
	best.prefill.inFlight++
	best.decode.inFlight++
	e := epochs{prefill: best.prefill.breaker.took(), decode: best.decode.breaker.took()}
	if br := p.pairs[best]; br != nil {
		e.pair = br.took()
	}
	return best, e, nil
}

// untried says that there is a pair for the model without any worker in not.
func (p *pool) untried(now time.Time, model string, not avoid) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, found := p.least(now, model, not)
	return found && not[x.prefill] == 0 && not[x.decode] == 0
}

// any says that some pair serves the model now.
func (p *pool) any(now time.Time, model string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, found := p.least(now, model, nil)
	return found
}

// least looks at every pair of usable workers.
func (p *pool) least(now time.Time, model string, not avoid) (best pair, found bool) {
	cost := func(x pair) (avoided, load int) {
		return not[x.prefill] + not[x.decode], x.prefill.inFlight + x.decode.inFlight
	}
	decodes := p.rotated(p.decodes, now)
	decodes = slices.DeleteFunc(decodes, func(w *worker) bool { return model != "" && w.info.Model != "" && w.info.Model != model })
	for _, pw := range p.rotated(p.prefills, now) {
		for _, dw := range decodes {
			x := pair{pw, dw}
			if found {
				f, l := cost(x)
				bf, bl := cost(best)
				if f > bf || f == bf && l >= bl {
					continue
				}
			}
			if p.unusable(x, now) == (reason{}) {
				best, found = x, true
			}
		}
	}
	return best, found
}

// rotated returns the usable ones, beginning with another one at every turn.
func (p *pool) rotated(workers []*worker, now time.Time) []*worker {
	out := make([]*worker, 0, len(workers))
	for i := range workers {
		if w := workers[(i+p.turn)%len(workers)]; w.usable(now) {
			out = append(out, w)
		}
	}
	return out
}

// none says why there is no pair, without an address.
func (p *pool) none(now time.Time, model string) *room.Cause {
	var why []string
	for _, w := range p.all() {
		if u := w.unusable(now); u != (reason{}) {
			why = append(why, w.name+": "+u.text)
		}
	}
	for _, x := range p.apart(now) {
		why = append(why, x.prefill.name+" with "+x.decode.name+": "+p.unusable(x, now).text)
	}
	if more := len(why) - maxReasons; more > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	what := "no usable pair of workers"
	if model != "" {
		what += fmt.Sprintf(" for the model %q", model)
	}
	return room.Because(room.NoPair, "%s", strings.Join(append([]string{what}, why...), "; "))
}

// forget forgets what the pairs of a worker that came back as another process
// have failed.
func (p *pool) forget(w *worker) {
	for x := range p.pairs {
		if x.prefill == w || x.decode == w {
			delete(p.pairs, x)
		}
	}
}

// apart lists the pairs of usable workers that are not used together.
func (p *pool) apart(now time.Time) (out []pair) {
	p.each(now, func(x pair, why reason) {
		if why != (reason{}) {
			out = append(out, x)
		}
	})
	return out
}

// each calls f for every pair of usable workers.
func (p *pool) each(now time.Time, f func(x pair, why reason)) {
	for _, pw := range p.prefills {
		for _, dw := range p.decodes {
			if pw.usable(now) && dw.usable(now) {
				f(pair{pw, dw}, p.unusable(pair{pw, dw}, now))
			}
		}
	}
}

// usablePairs counts the pairs that a new room may go to.
func (p *pool) usablePairs(now time.Time) (n int) {
	p.each(now, func(_ pair, why reason) {
		if why == (reason{}) {
			n++
		}
	})
	return n
}

// models returns the models that decode workers serve, each once, in the order in
// which the workers were given. all says that every decode worker has told its model.
func (p *pool) models() (served []serverInfo, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all = true
	for _, w := range p.decodes {
		i := slices.IndexFunc(served, func(s serverInfo) bool { return s.Model == w.info.Model })
		switch {
		case w.info.Model == "":
			all = false
		case i < 0:
			served = append(served, w.info)
		default: // what every one of them takes
			served[i].MaxModelLen = min(served[i].MaxModelLen, w.info.MaxModelLen)
		}
	}
	return served, all
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

// judge tells a worker's breaker what an attempt of that epoch says; cause is what it
// was guilty of.
func (p *pool) judge(w *worker, epoch int, v verdict, cause *room.Cause, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.breaker.judge(epoch, v, cause, now)
}

// judgePair tells the pair's breaker, which exists while there is something to
// remember.
func (p *pool) judgePair(x pair, epoch int, v verdict, cause *room.Cause, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	br := p.pairs[x]
	switch {
	case v == good && (br == nil || br.epoch == epoch):
		delete(p.pairs, x)
		return
	case br == nil && v == neutral:
		return
	case br == nil:
		br = &breaker{most: pairFailures}
		if p.pairs == nil {
			p.pairs = map[pair]*breaker{}
		}
		p.pairs[x] = br
	}
	br.judge(epoch, v, cause, now)
}

// unreachable takes a worker out of rotation at once.
func (p *pool) unreachable(w *worker, err error) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = w.ready
	w.unreachable(err, time.Now())
	return first
}

// gone says that a worker's process has ended since then: a new connection to it was
// refused. A connection that broke, or silence, alone does not say that.
func (p *pool) gone(w *worker, since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !w.refused.Before(since)
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
