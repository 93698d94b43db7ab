package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

const (
	// defaultGather is long enough for a small model on two cores to decode the
	// first of a crowd.
	defaultGather = 90 * time.Second
	// maxStreams is what workers and router remember of ended requests.
	maxStreams = 4000
	// freed is the promise: from a vanished client to free memory, after one step.
	freed = time.Second
	// stepTarget is how long an engine call should take at most; the longest one
	// seen counts if it took longer.
	stepTarget = 250 * time.Millisecond
	// rest is how long the first look waits for a system that is busy.
	rest = 15 * time.Second
	// patience is how long a gauge that is not back is watched, to say when it is.
	patience = 30 * time.Second
	// settle is how long connections and goroutines of a storm may last.
	settle = 10 * time.Second
)

// config is what the command line says.
type config struct {
	url             string
	streams, rounds int
	gather          time.Duration
}

// demo is one demonstration.
type demo struct {
	config
	*target
	out      *console
	baseline watch.Snapshot
	canary   song
	perWord  float64 // tokens of a word of text
	wrong    []string
	unmet    map[watch.Phase]bool // phases that no round has met
}

// demonstrate runs all rounds and prints the verdict.
func demonstrate(ctx context.Context, c config, out *console) (status int, err error) {
	t, err := find(ctx, c.url)
	if err != nil {
		return notShown, err
	}
	d := &demo{config: c, target: t, out: out, unmet: map[watch.Phase]bool{}}
	for _, p := range watch.Phases() {
		d.unmet[p] = true
	}
	out.say("system", "%v", t)
	if err := d.begin(ctx); err != nil {
		return notShown, err
	}
	for n := 1; n <= c.rounds; n++ {
		if err := d.round(ctx, n); err != nil {
			return damaged, fmt.Errorf("round %d: %w", n, err)
		}
	}
	if err := d.traces(ctx); err != nil {
		return damaged, err
	}
	return d.verdict(), nil
}

// begin warms the system up and remembers what it looks like at rest.
func (d *demo) begin(ctx context.Context) error {
	warm, err := sing(ctx, d.router, text(100, 1), 1)
	if err != nil {
		return fmt.Errorf("the first request failed: %w", err)
	}
	d.perWord = float64(warm.prompt) / 100
	if d.canary, err = sing(ctx, d.router, text(40, 7), canaryTokens); err != nil {
		return fmt.Errorf("the canary failed: %w", err)
	}
	var busy []string
	at, err := d.poll(ctx, rest, func(now watch.Snapshot) bool {
		d.baseline, busy = now, now.Busy()
		d.out.progress("waiting for rest: %s", strings.Join(busy, "; "))
		return len(busy) == 0
	})
	if err != nil {
		return err
	}
	if at.IsZero() {
		return fmt.Errorf("the system is busy, so its gauges would mean nothing: %s", strings.Join(busy, "; "))
	}
	gauges := 0
	for _, m := range d.baseline {
		gauges += len(m)
	}
	d.out.say("at rest", "canary %q, first token after %v; %d series of %d processes remembered",
		short(d.canary.text), d.canary.first.Round(time.Millisecond), gauges, len(d.processes))
	return nil
}

func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// poll scrapes until ok, and returns when the scrape began that was. A zero time
// says that it never was.
func (d *demo) poll(ctx context.Context, within time.Duration, ok func(watch.Snapshot) bool) (time.Time, error) {
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		began := time.Now()
		now, err := watch.Scrape(ctx, d.processes)
		if err != nil {
			return time.Time{}, err
		}
		if ok(now) {
			return began, nil
		}
		if began.After(deadline) {
			return time.Time{}, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// fault notes what is wrong and prints it.
func (d *demo) fault(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	d.wrong = append(d.wrong, line)
	d.out.say("", "WRONG: %s", line)
}

// traces waits until the processes themselves, connections and goroutines, are what
// they were.
func (d *demo) traces(ctx context.Context) error {
	began := time.Now()
	var grown []string
	at, err := d.poll(ctx, settle, func(now watch.Snapshot) bool {
		grown = now.Grown(d.baseline)
		d.out.progress("waiting for idle connections to end: %s", strings.Join(grown, "; "))
		return len(grown) == 0
	})
	if err != nil {
		return err
	}
	if at.IsZero() {
		d.fault("goroutines or descriptors have grown, %v later: %s", settle, strings.Join(grown, "; "))
		return nil
	}
	d.out.say("traces", "goroutines and descriptors are at their baseline too, %.1f s after the last round", at.Sub(began).Seconds())
	return nil
}

func (d *demo) verdict() int {
	var unmet []string
	for _, p := range watch.Phases() {
		if d.unmet[p] {
			unmet = append(unmet, string(p))
		}
	}
	switch {
	case len(d.wrong) > 0:
		d.out.say("verdict", "NOT survived: %s", strings.Join(d.wrong, "; "))
		return damaged
	case len(unmet) > 0:
		d.out.say("verdict", "nothing wrong, but no stream was ever %s: this shows too little (more --streams, or a longer --gather)", strings.Join(unmet, " or "))
		return notShown
	}
	d.out.say("verdict", "survived: %d times %d streams were killed at once, and nothing is left of them", d.rounds, d.streams)
	return survived
}
