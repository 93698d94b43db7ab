package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// streamTokens is far more than a stream generates while the prompts arrive.
const streamTokens = 1500

// measureMixed runs streams while long prompts arrive, on tandem serve with two
// compute threads and on a pair with one each, in turn, and compares the gaps
// between the streams' tokens. Both systems have the same two cores.
func measureMixed(ctx context.Context, c config) (string, error) {
	c.threads, c.serveThreads = "1", "2"
	f, err := start(ctx, c)
	if err != nil {
		return "", err
	}
	defer f.stop()
	gaps := map[string][]time.Duration{}
	prompts := map[string][]time.Duration{}
	for round := range c.pairs {
		order := []string{"serve", "pd"}
		if round%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		for _, which := range order {
			g, p, err := mixedRound(ctx, c, f.url[which], round)
			if err != nil {
				return "", fmt.Errorf("%s: %w\n%s", which, err, f.logs())
			}
			gaps[which], prompts[which] = append(gaps[which], g...), append(prompts[which], p...)
		}
		fmt.Fprintf(os.Stderr, "\rround %d of %d", round+1, c.pairs)
	}
	fmt.Fprintln(os.Stderr)
	var b strings.Builder
	fmt.Fprintf(&b, "model %s, %d running streams, prompts of about %d tokens arriving one after the other, %d rounds\n\n", c.model, c.streams, c.tokens, c.pairs)
	fmt.Fprintf(&b, "| | tandem serve, 2 threads | prefill 1 + decode 1 thread | serve over pair |\n|---|---|---|---|\n")
	for _, q := range []float64{0.5, 0.9, 0.99} {
		s, p := quantile(gaps["serve"], q), quantile(gaps["pd"], q)
		fmt.Fprintf(&b, "| ITL p%.0f | %.0f ms | %.0f ms | %.2f |\n", 100*q, ms(s), ms(p), float64(s)/float64(p))
	}
	s, p := quantile(prompts["serve"], 0.5), quantile(prompts["pd"], 0.5)
	fmt.Fprintf(&b, "| TTFT of the arriving prompts, median | %.0f ms | %.0f ms | %.2f |\n", ms(s), ms(p), float64(s)/float64(p))
	return b.String(), nil
}

// mixedRound runs the streams until the last prompt has its first token, and
// returns the gaps between their tokens and the prompts' TTFTs.
func mixedRound(ctx context.Context, c config, url string, round int) (gaps, ttft []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams errgroup.Group
	running := make(chan struct{}, c.streams)
	out := make([][]time.Duration, c.streams)
	for i := range c.streams {
		streams.Go(func() error {
			s, err := requestUntil(ctx, url, fmt.Sprintf("Stream %d of round %d: tell a long story.", i, round), streamTokens, func() { running <- struct{}{} })
			out[i] = s.itl
			if ctx.Err() != nil {
				return nil // ended on purpose
			}
			return err
		})
	}
	for range c.streams {
		select {
		case <-running:
		case <-time.After(time.Minute):
			return nil, nil, fmt.Errorf("the streams did not begin within a minute")
		}
	}
	for i := range c.arrivals {
		s, err := request(ctx, url, fmt.Sprintf("Arrival %d of round %d. ", i, round)+filler(c), 1)
		if err != nil {
			return nil, nil, err
		}
		ttft = append(ttft, s.ttft)
	}
	cancel()
	if err := streams.Wait(); err != nil {
		return nil, nil, err
	}
	for _, g := range out {
		gaps = append(gaps, g...)
	}
	return gaps, ttft, nil
}

func quantile(x []time.Duration, q float64) time.Duration {
	if len(x) == 0 {
		return 0
	}
	y := slices.Clone(x)
	slices.Sort(y)
	return y[min(int(q*float64(len(y))), len(y)-1)]
}
