package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

const (
	// streamTokens is far more than a stream generates while the prompts arrive.
	streamTokens = 1500
	// streamPrompt is the tokens of a stream's own prompt.
	streamPrompt = 24
	// settle is the time for what a cancelled stream left to end, before the next
	// system has the CPUs.
	settle = 500 * time.Millisecond
	// gapAim is how many times shorter the pair's p99 gap should be.
	gapAim = 5
)

// mixed measures the gaps between tokens of running streams while long prompts
// keep arriving: single servers with all threads, a pair with half of them each.
func (b *bench) mixed(ctx context.Context) error {
	f, systems, err := b.start(ctx, size{slots: b.running + 1, tokens: max(b.long, streamPrompt+streamTokens) + 2, single: 2 * b.threads, worker: b.threads, pair: true})
	if err != nil {
		return err
	}
	defer f.Stop()
	text := promptsOf(systems)
	p50, p90, p99, ttft := series{}, series{}, series{}, series{}
	for i := range b.rounds {
		for _, s := range rotated(systems, i) {
			g, t, err := b.mixedRound(ctx, s, text)
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", s.name, err, f.Logs())
			}
			gaps := stats.Millis(g)
			p50.add(s.name, stats.Quantile(gaps, 0.5))
			p90.add(s.name, stats.Quantile(gaps, 0.9))
			p99.add(s.name, stats.Quantile(gaps, 0.99))
			ttft.add(s.name, stats.Median(stats.Millis(t)))
			progress("mixed: round %d of %d, %s", i+1, b.rounds, s.name)
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	progressed()
	words := fmt.Sprintf(", %d streams, prompts of %d arriving", b.running, b.long)
	b.rep.add(row{Test: "mixed", Name: "ITL p50" + words, Unit: "ms"}, p50)
	b.rep.add(row{Test: "mixed", Name: "ITL p90", Unit: "ms"}, p90)
	b.rep.add(row{Test: "mixed", Name: "ITL p99", Unit: "ms", Aim: gapAim, AimOf: pair}, p99)
	b.rep.add(row{Test: "mixed", Name: "TTFT of the arriving prompts", Unit: "ms"}, ttft)
	return nil
}

// mixedRound runs the streams until the last prompt has its first token, and
// returns the gaps between their tokens from the first prompt's arrival on, and
// the prompts' TTFTs.
func (b *bench) mixedRound(ctx context.Context, s system, text *prompts) (gaps, ttft []time.Duration, err error) {
	ids := make([][]int32, b.running+b.arrivals)
	for i := range ids {
		n := b.long
		if i < b.running {
			n = streamPrompt
		}
		if ids[i], err = text.next(ctx, n); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams errgroup.Group
	running := make(chan struct{}, b.running)
	out := make([]client.Sample, b.running)
	for i := range b.running {
		streams.Go(func() error {
			var err error
			out[i], err = client.Complete(ctx, s.url, client.Request{Prompt: ids[i], Generate: streamTokens, Begun: func() { running <- struct{}{} }})
			if ctx.Err() != nil {
				return nil // ended on purpose
			}
			if err == nil {
				err = errors.New("a stream ended before the last prompt: let fewer prompts arrive")
			}
			cancel()
			return err
		})
	}
	for range b.running {
		select {
		case <-running:
		case <-ctx.Done():
			return nil, nil, errors.Join(streams.Wait(), ctx.Err())
		case <-time.After(time.Minute):
			return nil, nil, errors.New("the streams did not begin within a minute")
		}
	}
	from := time.Now()
	for _, p := range ids[b.running:] {
		x, err := client.Complete(ctx, s.url, client.Request{Prompt: p, Generate: 1})
		if err != nil {
			return nil, nil, errors.Join(streams.Wait(), err)
		}
		if err := same(s.name, x, b.long, 1, true); err != nil {
			return nil, nil, err
		}
		ttft = append(ttft, x.TTFT())
	}
	cancel()
	if err := streams.Wait(); err != nil {
		return nil, nil, err
	}
	for i := range out {
		gaps = append(gaps, gapsSince(&out[i], from)...)
	}
	return gaps, ttft, nil
}

// gapsSince are the gaps that end after from.
func gapsSince(s *client.Sample, from time.Time) []time.Duration {
	all := s.Gaps()
	for i := range all {
		if s.Began.Add(s.Events[i+1].At).After(from) {
			return all[i:]
		}
	}
	return nil
}
