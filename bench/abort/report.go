package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"github.com/tandem-llm/tandem/bench/internal/stats"
)

// report is the result of one run; what was not asked for is empty.
type report struct {
	Model      string      `json:"model"`
	Storms     []*storms   `json:"storms,omitempty"`
	Throughput *throughput `json:"throughput,omitempty"`
	Rooms      []roomCost  `json:"rooms,omitempty"`
	Deaths     []*deaths   `json:"deaths,omitempty"`
	Restarts   []*restarts `json:"restarts,omitempty"`
}

// leastRounds of a storm, however large.
const leastRounds = 5

func (r *report) measure(ctx context.Context, c config) error {
	r.Model = c.model
	for _, n := range c.rooms {
		progress("the room protocol beside %d live rooms", n)
		cost, err := measureRooms(n)
		if err != nil {
			return err
		}
		r.Rooms = append(r.Rooms, cost)
	}
	for i, n := range c.storms {
		if err := r.storm(ctx, c, n, max(leastRounds, c.rounds*c.storms[0]/n)); err != nil {
			return fmt.Errorf("storm of %d: %w", c.storms[i], err)
		}
	}
	if c.pairs == 0 && c.deaths == 0 {
		return nil
	}
	s, err := start(ctx, c, 60)
	if err != nil {
		return err
	}
	defer s.fleet.Stop()
	if c.pairs > 0 {
		progress("throughput before and after a storm, %d pairs", c.pairs)
		t, err := s.compare(ctx, c.pairs, 60, c.window)
		if err != nil {
			return err
		}
		r.Throughput = &t
	}
	return r.die(ctx, c, s)
}

func (r *report) storm(ctx context.Context, c config, n, rounds int) error {
	s, err := start(ctx, c, n)
	if err != nil {
		return err
	}
	defer s.fleet.Stop()
	if _, err := s.rate(ctx, c.window); err != nil { // warms up, and makes the session
		return err
	}
	one := &storms{Streams: n}
	r.Storms = append(r.Storms, one)
	for i := range rounds {
		progress("storm %d of %d, %d streams, %d router(s)", i+1, rounds, n, len(s.routers))
		if err := s.storm(ctx, n, one); err != nil {
			return err
		}
	}
	return nil
}

// die kills and freezes prefill, and restarts everything.
func (r *report) die(ctx context.Context, c config, s *system) error {
	if c.deaths == 0 {
		return nil
	}
	dead, frozen := &deaths{How: "killed (SIGKILL)"}, &deaths{How: "frozen (SIGSTOP)"}
	r.Deaths = []*deaths{dead, frozen}
	for i := range c.deaths {
		progress("death %d of %d", i+1, c.deaths)
		if err := s.notice(ctx, syscall.SIGKILL, dead); err != nil {
			return fmt.Errorf("a killed prefill worker: %w", err)
		}
		if _, err := s.fleet.Again(ctx, s.pair.Prefill, "/readyz"); err != nil {
			return err
		}
		if err := s.fleet.Ready(ctx); err != nil {
			return err
		}
		if err := s.notice(ctx, syscall.SIGSTOP, frozen); err != nil {
			return fmt.Errorf("a frozen prefill worker: %w", err)
		}
		if _, err := s.fleet.Again(ctx, s.pair.Prefill, "/readyz"); err != nil { // kills it first
			return err
		}
		if err := s.fleet.Ready(ctx); err != nil {
			return err
		}
	}
	byRole := map[string]*restarts{}
	for i := range c.deaths {
		progress("restart %d of %d of each process", i+1, c.deaths)
		if err := s.restart(ctx, byRole); err != nil {
			return err
		}
	}
	for _, role := range []string{"router", "prefill", "decode"} {
		r.Restarts = append(r.Restarts, byRole[role])
	}
	return nil
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Engine: %s.\n", r.Model)
	if len(r.Storms) > 0 {
		fmt.Fprintf(&b, "\n| streams killed at once | routers | storms | all free, p50 ms | p99 | max | the instant, ms | phases, last storm |\n|---|---|---|---|---|---|---|---|\n")
		for _, s := range r.Storms {
			fmt.Fprintln(&b, s.row())
		}
	}
	if t := r.Throughput; t != nil {
		fmt.Fprintf(&b, "\nThroughput, %d pairs: %.0f tokens/s before a storm of 60, %.0f after; after over before %s. Two measurements without a storm between them: %s.\n",
			t.Pairs, t.Before, t.After, t.Ratio, t.Control)
	}
	if len(r.Rooms) > 0 {
		fmt.Fprintf(&b, "\n| live rooms | bytes per live room, both sides | one hand-over: CPU µs | allocations | bytes | one abort: CPU µs | allocations | bytes |\n|---|---|---|---|---|---|---|---|\n")
		for _, c := range r.Rooms {
			fmt.Fprintf(&b, "| %d | %.0f | %.2f | %d | %d | %.2f | %d | %d |\n", c.Live, c.BytesLive, c.Handover, c.HandoverAlloc, c.HandoverBytes, c.Abort, c.AbortAlloc, c.AbortBytes)
		}
	}
	if len(r.Deaths) > 0 {
		fmt.Fprintf(&b, "\n| a prefill worker is | times | suspected by decode | fenced by decode | out of the router's rotation |\n|---|---|---|---|---|\n")
		for _, d := range r.Deaths {
			fmt.Fprintln(&b, d.row())
		}
	}
	if len(r.Restarts) > 0 {
		fmt.Fprintf(&b, "\n| process | start to ready, median | most |\n|---|---|---|\n")
		for _, x := range r.Restarts {
			fmt.Fprintf(&b, "| %s | %.0f ms | %.0f ms |\n", x.Role, stats.Median(x.Ready), stats.Quantile(x.Ready, 1))
		}
	}
	return b.String()
}
