package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

const (
	gatherFor = 20 * time.Second // at most, until the streams are in every phase
	backFor   = 60 * time.Second // at most, until the gauges are back
	pollEvery = 5 * time.Millisecond
)

// storms is what rounds of one size gave.
type storms struct {
	Streams int       `json:"streams"`
	Rounds  int       `json:"rounds"`
	Routers int       `json:"routers"`
	Free    []float64 `json:"all_free_ms"` // from the last connection's end
	Instant []float64 `json:"instant_ms"`  // how long the killing took
	Phases  string    `json:"phases_of_the_last_round"`
}

func (s *storms) row() string {
	return fmt.Sprintf("| %d | %d | %d | %.0f | %.0f | %.0f | %.1f | %s |", s.Streams, s.Routers, s.Rounds,
		stats.Median(s.Free), stats.Quantile(s.Free, 0.99), stats.Quantile(s.Free, 1), stats.Median(s.Instant), s.Phases)
}

// storm opens n streams on all routers, kills them at once and waits for the gauges.
func (s *system) storm(ctx context.Context, n int, into *storms) error {
	rest, err := s.rest(ctx, nil, time.Now(), nil)
	if err != nil {
		return fmt.Errorf("not at rest before a storm: %w", err)
	}
	var crowd vanish.Crowd
	defer func() { crowd.Reset(); crowd.Wait() }()
	for i, url := range s.routers {
		share := n / len(s.routers)
		if i == 0 {
			share = n - share*(len(s.routers)-1)
		}
		part, err := vanish.OpenAll(ctx, vanish.Addr(url), "/v1/completions", share, s.body)
		if err != nil {
			return fmt.Errorf("the streams could not be opened: %w", err)
		}
		crowd = append(crowd, part...)
	}
	seen, err := s.gather(ctx)
	if err != nil {
		return err
	}
	for _, c := range crowd {
		if c.Ended() {
			n--
		}
	}
	began := time.Now()
	crowd.Reset()
	killed := time.Now()
	_, err = s.rest(ctx, rest, killed, func(off []string) {
		progress("  %d streams: %.1f s, %d gauges are not back: %s", n, time.Since(killed).Seconds(), len(off), strings.Join(off[:min(2, len(off))], "; "))
	})
	if err != nil {
		return err
	}
	into.Rounds++
	into.Routers = len(s.routers)
	into.Free = append(into.Free, stats.Ms(s.restedAt.Sub(killed)))
	into.Instant = append(into.Instant, stats.Ms(killed.Sub(began)))
	into.Phases = seen.String()
	return nil
}

// gather waits until streams are in every phase, and says how many are in which.
func (s *system) gather(ctx context.Context) (seen watch.Count, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < gatherFor; {
		rooms, err := watch.Look(ctx, []string{s.pair.Prefill}, []string{s.pair.Decode}, 0)
		if err != nil {
			return nil, err
		}
		if seen = rooms.Live(); seen.Every() {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	return seen, nil // the report says what was met
}

// rest polls until nothing is in progress, or nothing is off a baseline; the moment
// is the beginning of the scrape that showed it.
func (s *system) rest(ctx context.Context, baseline watch.Snapshot, since time.Time, waiting func([]string)) (watch.Snapshot, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		began := time.Now()
		now, err := watch.Scrape(ctx, s.processes())
		if err != nil {
			return nil, err
		}
		off := now.Busy()
		if baseline != nil {
			off = append(off, now.Off(baseline)...)
		}
		if len(off) == 0 {
			s.restedAt = began
			return now, nil
		}
		if waiting != nil {
			waiting(off)
		}
		if time.Since(since) > backFor {
			return nil, fmt.Errorf("%v later: %s", backFor, strings.Join(off, "; "))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
