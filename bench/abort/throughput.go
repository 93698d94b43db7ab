package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

// throughput is what the pair did before and after storms.
type throughput struct {
	Pairs  int            `json:"pairs"`
	Before float64        `json:"before_tokens_per_second"`
	After  float64        `json:"after_tokens_per_second"`
	Ratio  stats.Interval `json:"after_over_before"`
	// Control is the ratio of two measurements without a storm between them: the machine's own noise.
	Control stats.Interval `json:"control"`
}

// compare measures the tokens per second twice without a storm and then after one,
// in turn: before, control, storm, after.
func (s *system) compare(ctx context.Context, pairs, streams int, window time.Duration) (throughput, error) {
	t := throughput{Pairs: pairs}
	var before, control, after []float64
	if _, err := s.rate(ctx, window); err != nil { // warms up
		return t, err
	}
	for i := range pairs {
		var v [3]float64
		for k := range v {
			if k == 2 {
				if err := s.storm(ctx, streams, &storms{}); err != nil {
					return t, err
				}
			}
			var err error
			if v[k], err = s.rate(ctx, window); err != nil {
				return t, fmt.Errorf("pair %d: %w", i, err)
			}
		}
		control, before, after = append(control, v[0]), append(before, v[1]), append(after, v[2])
		progress("  pair %d of %d: %.0f tokens/s before, %.0f after", i+1, pairs, v[1], v[2])
	}
	t.Before, t.After = stats.Median(before), stats.Median(after)
	t.Ratio, t.Control = stats.Bootstrap(stats.Ratios(after, before)), stats.Bootstrap(stats.Ratios(before, control))
	return t, nil
}

// closed is how many clients ask one request after the other.
const closed = 12

// rate is the tokens per second of a closed loop, counted at the clients.
func (s *system) rate(ctx context.Context, window time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	var (
		wg     sync.WaitGroup
		tokens atomic.Int64
		mu     sync.Mutex
		failed error
	)
	began := time.Now()
	for range closed {
		wg.Go(func() {
			for ctx.Err() == nil {
				got, err := client.Complete(ctx, s.routers[0], client.Request{Prompt: words(60, int(s.opened.Add(1))), Generate: 32})
				tokens.Add(int64(len(got.Events)))
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(tokens.Load()) / time.Since(began).Seconds(), failed
}
