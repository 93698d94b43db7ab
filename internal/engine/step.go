package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
)

// turn runs one step and says whether it did anything. A step is: mail →
// cancels → imports within the budget → one batch → tokens and chunks out.
func (l *Loop) turn() bool {
	l.step++
	did := l.receive()
	l.publish()
	did = l.settle() || did
	did = l.comeBack() || did
	did = l.resumes() || did
	did = l.imports() || did
	l.promote()
	if l.grow() {
		l.settle()
		did = true
	}
	did = l.compute() || did
	l.sweep()
	l.watchWindows()
	if did {
		l.stepped++
		l.done.Store(&doneState{steps: l.stepped, at: l.now()})
	}
	l.assert()
	return did
}

// settle places what arrived and makes room for all reservations.
func (l *Loop) settle() (did bool) {
	for {
		did = l.place() || did
		if l.makeRoom() {
			return did
		}
		did = l.receive() || did // what is left is pinned by arrivals
	}
}

// receive takes arrivals in and ends what was cancelled.
func (l *Loop) receive() bool {
	l.mu.Lock()
	did := len(l.arrivals) > 0
	l.live = append(l.live, l.arrivals...)
	clear(l.arrivals)
	l.arrivals = l.arrivals[:0]
	var gone []*Seq
	for _, s := range l.live {
		if s.cancel != nil && !s.over {
			gone = append(gone, s)
		}
	}
	l.mu.Unlock()
	for _, s := range gone {
		l.finish(s, FinishCanceled, nil)
	}
	return did || len(gone) > 0
}

// resumes asks again for space where someone said there may be some.
func (l *Loop) resumes() bool {
	did := false
	for _, s := range l.live {
		l.mu.Lock()
		again := s.resume && !s.over
		s.resume = false
		l.mu.Unlock()
		if again && s.owes {
			did = true
			l.export(s)
		}
	}
	return did
}

// imports takes queued chunks in, fairly, within the step's byte budget.
func (l *Loop) imports() bool {
	var queue []*Seq
	l.mu.Lock()
	for _, s := range l.live {
		if len(s.imports) > 0 && !s.over {
			queue = append(queue, s)
		}
	}
	l.mu.Unlock()
	if len(queue) == 0 {
		return false
	}
	slices.SortStableFunc(queue, func(a, b *Seq) int {
		x, y := ask{served: a.fed, due: a.due}, ask{served: b.fed, due: b.due}
		return x.before(y)
	})
	left := l.cfg.ImportBudget
	for len(queue) > 0 && left > 0 {
		s := queue[0]
		queue = queue[1:]
		n, more := l.importOne(s)
		left -= n
		if more {
			queue = append(queue, s)
		}
	}
	return true
}

// importOne imports the first queued chunk of s.
func (l *Loop) importOne(s *Seq) (bytes int, more bool) {
	l.mu.Lock()
	if s.over || s.cancel != nil || len(s.imports) == 0 { // a cancel gives its queue back
		l.mu.Unlock()
		return 0, false
	}
	c := s.imports[0]
	s.imports = s.imports[1:]
	more = len(s.imports) > 0
	l.mu.Unlock()

	l.begin(s)
	s.fed = l.step
	l.enter(int(c.p1-c.p0), 0)
	err := l.backend.Import(s.slot, c.p0, c.p1, c.src)
	l.leave()
	if err == nil {
		s.pos = c.p1
		s.res.Imported += int(c.p1 - c.p0)
	} else {
		err = fmt.Errorf("import of positions [%d, %d): %w", c.p0, c.p1, err)
	}
	if p := l.guard(s, func() { s.h.Imported(c.p0, c.p1, err) }); err == nil {
		err = p
	}
	if err != nil {
		l.finish(s, FinishFailed, err)
		return len(c.src), false
	}
	return len(c.src), more
}

// promote moves sequences on that need no more prompt.
func (l *Loop) promote() {
	for _, s := range l.live {
		if s.over || !s.placed() || s.owes || s.pos < s.end || s.phase == decoding {
			continue
		}
		l.begin(s)
		if s.ready.IsZero() {
			s.ready = l.now()
		}
		if s.req.Gen == nil {
			l.finish(s, FinishPrefilled, nil)
			continue
		}
		l.enterPhase(s, decoding)
	}
}

// compute plans one batch, runs it and hands out what came of it.
func (l *Loop) compute() bool {
	l.gather()
	l.limitScores()
	if len(l.spans) == 0 {
		return false
	}
	l.fill()
	l.mu.Lock()
	l.uncancelled = 0
	for _, s := range l.batch {
		s.inBatch = true
		if s.cancel == nil {
			l.uncancelled++
		}
	}
	// Cancelled since the mail was taken, all of them: there is nothing to compute.
	run := l.uncancelled > 0 && !l.closed
	l.computing = run
	l.mu.Unlock()

	var err error
	if run {
		rows := len(l.rows)
		l.enter(rows, l.speed.expect(rows, l.cfg.StepTarget))
		start := l.now()
		err = l.backend.Compute(l.rows)
		took := l.now().Sub(start)
		l.leave()
		if err == nil {
			l.speed.add(rows, took)
		}
	}

	l.mu.Lock()
	l.computing = false
	wanted := l.uncancelled > 0 && !l.closed
	for _, s := range l.batch {
		s.inBatch = false
	}
	l.mu.Unlock()
	if !run {
		return true
	}
	if err != nil {
		level := slog.LevelWarn
		if !wanted { // interrupted on purpose
			level = slog.LevelDebug
		}
		l.log.Log(context.Background(), level, "compute failed", "rows", len(l.rows), "sequences", len(l.batch), "err", err)
		for _, s := range l.batch {
			s.broken = wanted || l.info.Window < 0
			l.finish(s, FinishFailed, fmt.Errorf("compute: %w", err))
		}
		return true
	}
	row := 0
	for i, s := range l.batch {
		row += int(l.spans[i].end - l.spans[i].pos)
		if l.canceled(s) { // this is the border its cancel waited for
			s.broken = l.info.Window < 0 // it cannot be cut
			l.finish(s, FinishCanceled, nil)
			continue
		}
		l.advance(s, l.spans[i], row-1)
	}
	return true
}

func (l *Loop) canceled(s *Seq) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.cancel != nil
}

// gather chooses the batch's sequences and spans: decode rows first.
func (l *Loop) gather() {
	l.batch, l.spans = l.batch[:0], l.spans[:0]
	l.asks, l.asking = l.asks[:0], l.asking[:0]
	for _, s := range l.live {
		switch {
		case s.over:
		case s.decodes():
			l.batch = append(l.batch, s)
			l.spans = append(l.spans, piece{pos: s.pos, end: s.pos + 1})
		case s.computes():
			l.asks = append(l.asks, ask{pos: s.pos, end: s.end, served: s.served, due: s.due})
			l.asking = append(l.asking, s)
		}
	}
	if l.cfg.Deterministic {
		l.gatherOne()
		return
	}
	if len(l.asks) == 0 {
		return
	}
	lim := limits{chunk: int32(l.info.Chunk), min: int32(l.cfg.MinStep), max: int32(l.cfg.MaxStep)}
	target := l.cfg.StepTarget
	switch {
	case len(l.spans) > 0:
		target, lim.min = l.cfg.MixedTarget, max(lim.min/2, 1)
	case len(l.live) == 1:
		target = l.cfg.SoloTarget
	}
	lim.budget = l.speed.budget(target, lim.min, lim.max)
	l.plan = pieces(l.asks, len(l.spans), lim, l.plan)
	for _, p := range l.plan {
		l.batch = append(l.batch, l.asking[p.ask])
		l.spans = append(l.spans, p)
	}
}

// gatherOne keeps the one sequence whose turn it is.
func (l *Loop) gatherOne() {
	all := append(l.batch, l.asking...)
	if len(all) == 0 {
		return
	}
	s := slices.MinFunc(all, func(a, b *Seq) int {
		return cmp.Or(cmp.Compare(a.served, b.served), ask{due: a.due}.before(ask{due: b.due}))
	})
	p := piece{pos: s.pos, end: s.pos + 1}
	if s.computes() {
		c := int32(l.info.Chunk)
		p.end = min((s.pos/c+1)*c, s.end)
	}
	l.batch, l.spans = append(all[:0], s), append(l.spans[:0], p)
}

// fill writes the batch's rows.
func (l *Loop) fill() {
	l.rows = l.rows[:0]
	for i, s := range l.batch {
		l.begin(s)
		s.served = l.step
		for p := l.spans[i].pos; p < l.spans[i].end; p++ {
			r := Row{Seq: s.slot, Pos: p, Logits: s.phase == decoding || s.req.scores(p)}
			r.Token = s.tokenAt(p)
			l.rows = append(l.rows, r)
		}
	}
}

// advance takes in that s now has p in the cache; row is its last row.
func (l *Loop) advance(s *Seq, p piece, row int) {
	s.pos = p.end
	if s.phase == decoding {
		if int(p.pos) < len(s.req.Tokens) {
			s.res.Computed++ // the last prompt token
		} else {
			s.made = append(s.made, s.token)
		}
		l.generate(s, row)
		return
	}
	s.res.Computed += int(p.end - p.pos)
	l.promptScores(s, p, row)
	l.export(s)
	if !s.over && !s.owes && s.pos == s.end && s.req.Gen == nil {
		s.ready = l.now()
		l.finish(s, FinishPrefilled, nil)
	}
}

// generate chooses the token that follows the row's.
func (l *Loop) generate(s *Seq, row int) {
	t, lp, ends, err := l.choose(s, row)
	if err != nil {
		l.finish(s, FinishFailed, err)
		return
	}
	if ends {
		s.res.Stop = t
		l.finish(s, FinishStop, nil)
		return
	}
	s.token = t
	s.res.Generated++
	if err := l.guard(s, func() { s.h.Token(t, s.pos, lp) }); err != nil {
		l.finish(s, FinishFailed, err)
		return
	}
	if s.res.Generated >= s.req.Gen.MaxTokens {
		l.finish(s, FinishLength, nil)
	}
}
