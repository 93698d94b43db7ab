package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

// settle is how long after load gauges may take to come back: the promise's number.
const settle = 10 * time.Second

// harm is one fault and its aftermath.
type harm struct {
	Began, Healed time.Time
	Name, What    string
}

// soak runs everything, prints as it goes, and returns what went wrong.
func soak(ctx context.Context, c config) (wrong []string, err error) {
	if runtime.GOOS != "linux" && c.every > 0 {
		return nil, errors.New("the workers' processes are found in /proc, so faults need Linux: say --fault 0")
	}
	say("starting %d prefill and %d decode workers, engine %s", c.prefill, c.decode, c.engine)
	f, err := startFleet(ctx, c)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	l := newLoad(f.router)
	say("measuring capacity for %v with %d requests at once", measuring, crowd)
	most, err := l.capacity(ctx, c.seed)
	if err != nil {
		return nil, err
	}
	rate := most * c.load
	l.client.CloseIdleConnections()
	rest, err := f.rest(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("not at rest after the measuring: %w", err)
	}
	say("capacity %.1f requests/s; offering %.1f for %v, a fault about every %v, seed %d", most, rate, c.span, c.every, c.seed)

	j := newJournal(c, rate)
	loading, stop := context.WithTimeout(ctx, c.span)
	defer stop()
	offered, harmed := make(chan struct{}), make(chan error, 1)
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { defer close(offered); l.offer(loading, rate, c.seed) })
	both.Go(func() { harmed <- j.doHarm(loading, f, c) })
	tick := time.NewTicker(c.sample)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-offered:
			running = false
		case <-tick.C:
		}
		j.sample(f.pids(), f.scrape(ctx), l)
	}
	if err := <-harmed; err != nil {
		j.fault("%v", err)
	}
	if ctx.Err() != nil {
		say("interrupted: what follows is of a shorter run")
	}
	if n := l.unsent.Load(); n > 0 {
		j.fault("%d requests were not sent, because %d were open", n, maxOpen)
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*backTimeout)
	defer cancel()
	if err := f.whole(final, c.prefill+c.decode, backTimeout); err != nil {
		j.fault("the fleet did not come back: %v", err)
	} else if err := l.prove(final, 4*(c.prefill+c.decode)); err != nil {
		j.fault("after the load: %v", err)
	} else if _, err := f.rest(final, rest); err != nil {
		j.fault("after the load: %v", err)
	}
	j.judge()
	fmt.Println(j.table())
	if len(j.wrong) > 0 {
		say("the fleet's log: %s", f.log.Name())
	}
	if c.out != "" {
		if err := j.write(c.out); err != nil {
			return nil, err
		}
	}
	return j.wrong, nil
}

// scrape reads the metrics of those members that answer.
func (f *fleet) scrape(ctx context.Context) watch.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, _ := watch.Scrape(ctx, f.pids()) // one that is dead or frozen is not in it
	return s
}

// rest waits until nothing is in progress and, against a baseline, nothing is off
// and nothing has grown.
func (f *fleet) rest(ctx context.Context, baseline watch.Snapshot) (watch.Snapshot, error) {
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		late := time.Since(began) > settle
		now, err := watch.Scrape(ctx, f.pids())
		if err == nil {
			off := append(append(now.Busy(), now.Off(baseline)...), now.Grown(baseline)...)
			if len(off) == 0 {
				return now, nil
			}
			err = fmt.Errorf("%v later: %s", settle, strings.Join(off, "; "))
		}
		if late {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// doHarm does a fault, waits until the fleet is whole again, and then for the next.
func (j *journal) doHarm(ctx context.Context, f *fleet, c config) error {
	if c.every == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(c.seed, 2<<32))
	for {
		pause := time.NewTimer(c.every/2 + time.Duration(r.Int64N(int64(c.every))))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		// The end of the load does not cut a fault short: what was frozen goes on.
		ctx := context.WithoutCancel(ctx)
		kind := choose(r, c.only)
		n := j.began(kind.name)
		what, err := kind.do(ctx, f, r)
		if err != nil {
			return fmt.Errorf("the fault %q could not be done: %w", kind.name, err)
		}
		if err := f.whole(ctx, c.prefill+c.decode, backTimeout); err != nil {
			return fmt.Errorf("after %s (%s): %w", kind.name, what, err)
		}
		j.healed(n, what)
	}
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

var verbose bool

func detail(format string, args ...any) {
	if verbose {
		say("  "+format, args...)
	}
}

// write keeps everything that was seen.
func (j *journal) write(path string) error {
	b, err := json.MarshalIndent(map[string]any{"rate": j.rate, "samples": j.samples, "harms": j.harms, "unwell": j.unwell, "wrong": j.wrong}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
