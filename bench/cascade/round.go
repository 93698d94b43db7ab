package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/id"
)

// longest is the longest prompt, in tokens, that a stream has; with less context it
// is a quarter of that.
const longest = 1500

// storm is the streams of one round. One that ends by itself is replaced.
type storm struct {
	d      *demo
	n      int    // of the round
	label  string // that its streams' rids begin with
	crowd  vanish.Crowd
	opened int
}

// body makes the i-th stream's request. The prompts have very different lengths, so
// that the streams are soon in different phases.
func (s *storm) body(i int) []byte {
	words := float64(min(longest, s.d.context/4)) / s.d.perWord / math.Pow(2.5, float64(i%4))
	return body(text(int(words), 1000*s.n+i), min(512, s.d.context/4), fmt.Sprintf("%s-%d", s.label, i))
}

func (s *storm) open(ctx context.Context) (err error) {
	s.crowd, err = vanish.OpenAll(ctx, vanish.Addr(s.d.router), "/v1/completions", s.d.streams, s.body)
	s.opened = s.d.streams
	return err
}

// refill opens a new stream for each that has ended.
func (s *storm) refill(ctx context.Context) error {
	for i, c := range s.crowd {
		if !c.Ended() {
			continue
		}
		another, err := vanish.Open(ctx, vanish.Addr(s.d.router), "/v1/completions", s.body(s.opened))
		if err != nil {
			return err
		}
		s.opened++
		s.crowd[i] = another
	}
	return nil
}

// gather waits until the streams are in every phase. It also says how long the
// longest engine call was that it saw.
func (s *storm) gather(ctx context.Context) (seen watch.Count, step time.Duration, err error) {
	step = stepTarget
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < s.d.config.gather {
		now, err := watch.Scrape(ctx, s.d.processes)
		if err != nil {
			return nil, 0, err
		}
		for _, m := range now {
			step = max(step, time.Duration(m["tandem_engine_in_call_seconds"]*float64(time.Second)))
		}
		if err := s.refill(ctx); err != nil {
			return nil, 0, err
		}
		rooms, err := watch.Look(ctx, s.d.prefills, s.d.decodes, 0)
		if err != nil {
			return nil, 0, err
		}
		if seen = rooms.Live(); seen.Every() {
			break
		}
		s.d.out.progress("round %d, %2.0f s: %v", s.n, time.Since(began).Seconds(), seen)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	return seen, step, nil
}

// round is one storm and what is left of it.
func (d *demo) round(ctx context.Context, n int) error {
	before, err := watch.Scrape(ctx, d.processes)
	if err != nil {
		return err
	}
	s := &storm{d: d, n: n, label: fmt.Sprintf("cascade-%v-%d", id.NewRID(), n)}
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("the streams could not be opened: %w", err)
	}
	defer s.crowd.Wait()
	defer s.crowd.Reset()
	seen, step, err := s.gather(ctx)
	if err != nil {
		return err
	}

	killed := time.Now()
	s.crowd.Reset()
	instant := time.Since(killed)
	d.out.say(fmt.Sprintf("round %d", n), "%d streams killed within %v: %v", d.streams, instant.Round(time.Millisecond), seen)
	if err := d.aftermath(ctx, killed, step); err != nil {
		return err
	}
	next, err := sing(ctx, d.router, text(40, 7), canaryTokens)
	switch {
	case err != nil:
		d.fault("the next request failed: %v", err)
	case next.text != d.canary.text:
		d.fault("the canary's text was %q, is %q", d.canary.text, next.text)
	default:
		d.out.say("", "the next request: the same text, first token after %v (before: %v)", next.first.Round(time.Millisecond), d.canary.first.Round(time.Millisecond))
	}
	return d.account(ctx, before, s)
}

// aftermath waits for every gauge of what requests hold.
func (d *demo) aftermath(ctx context.Context, killed time.Time, step time.Duration) error {
	var off []string
	at, err := d.poll(ctx, patience, func(now watch.Snapshot) bool {
		off = now.Off(d.baseline)
		d.out.progress("%.1f s: %d gauges are not back: %s", time.Since(killed).Seconds(), len(off), strings.Join(off[:min(2, len(off))], "; "))
		return len(off) == 0
	})
	switch allowed := step + freed; {
	case err != nil:
		return err
	case at.IsZero():
		d.fault("%d gauges were not back %v after the kill: %s", len(off), patience, strings.Join(off, "; "))
	case at.Sub(killed) > allowed:
		d.fault("the gauges were back only after %v, allowed is %v", at.Sub(killed).Round(time.Millisecond), allowed.Round(time.Millisecond))
	default:
		d.out.say("", "rooms, queues, KV cells, arena, legs: all back after %v (allowed: a step of %v and %v)",
			at.Sub(killed).Round(time.Millisecond), step.Round(time.Millisecond), freed)
	}
	return nil
}

// account looks at what was counted, and at how far the streams had really come.
func (d *demo) account(ctx context.Context, before watch.Snapshot, s *storm) error {
	const others = 100 // canaries, and whoever else asked
	requests, err := watch.Requests(ctx, d.router, s.label+"-", s.opened+others)
	if err != nil {
		return err
	}
	rooms, err := watch.Look(ctx, d.prefills, d.decodes, s.opened+others)
	if err != nil {
		return err
	}
	now, err := watch.Scrape(ctx, d.processes)
	if err != nil {
		return err
	}
	met := rooms.Of(watch.RoomsOf(requests))
	for phase, n := range met {
		d.unmet[phase] = d.unmet[phase] && n == 0
	}
	d.out.say("", "when they ended they were: %v", met)
	wrong := len(d.wrong)
	aborted, finished := 0, 0
	for _, r := range requests {
		switch r.Outcome {
		case "aborted":
			aborted++
		case "ok": // before the kill
			finished++
		default:
			d.fault("stream %s ended %s (%s): %s", r.Label, r.Outcome, r.Code, r.Detail)
		}
	}
	if aborted+finished != s.opened || finished > s.opened-d.streams/2 {
		d.fault("of %d streams the router counts %d as aborted and %d as finished", s.opened, aborted, finished)
	}
	was := before.Failures()
	for process, n := range now.Failures() {
		if n != was[process] {
			d.fault("%s counts %g failures more: an abort is none", process, n-was[process])
		}
	}
	if b := now.Breakers(); b != 0 {
		d.fault("a breaker is not closed (state %g)", b)
	}
	if len(d.wrong) == wrong {
		d.out.say("", "counted: %d aborted, %d had finished, 0 failures; breakers closed", aborted, finished)
	}
	return nil
}
