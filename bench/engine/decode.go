package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-llm/tandem/bench/internal/client"
)

// speedAim is what share of llama-server's speed is asked for.
const speedAim = 0.98

// decode measures tokens per second of concurrent streams.
func (b *bench) decode(ctx context.Context) error {
	for _, n := range b.streams {
		if err := b.decodeStreams(ctx, n); err != nil {
			return fmt.Errorf("%d streams: %w", n, err)
		}
	}
	return nil
}

func (b *bench) decodeStreams(ctx context.Context, n int) error {
	f, systems, err := b.start(ctx, size{slots: n, tokens: b.prompt + b.generate + 1, single: b.threads})
	if err != nil {
		return err
	}
	defer f.Stop()
	text := promptsOf(systems)
	rate, whole := series{}, series{}
	for i := -1; i < b.pairs; i++ { // the first pair warms up
		var ids [][]int32
		for range n {
			p, err := text.next(ctx, b.prompt)
			if err != nil {
				return err
			}
			ids = append(ids, p)
		}
		texts := map[string][]client.Sample{}
		for _, s := range rotated(systems, i) {
			out, took, err := burst(ctx, s.url, ids, b.generate)
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", s.name, err, f.Logs())
			}
			for _, x := range out {
				if err := same(s.name, x, b.prompt, b.generate, true); err != nil {
					return err
				}
			}
			r, err := client.Rate(out)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if texts[s.name] = out; i >= 0 {
				rate.add(s.name, r)
				whole.add(s.name, float64(n*b.generate)/took.Seconds())
			}
		}
		b.rep.compare(fmt.Sprintf("decode, %d stream(s)", n), texts)
		progress("decode, %d stream(s): pair %d of %d", n, i+1, b.pairs)
	}
	progressed()
	b.rep.add(row{Test: "decode", Name: fmt.Sprintf("decode, %d stream(s)", n), Unit: "tokens/s", Higher: true, Aim: speedAim, AimOf: serve}, rate)
	b.rep.add(row{Test: "decode", Name: fmt.Sprintf("the same with its prompts, %d × %d → %d", n, b.prompt, b.generate), Unit: "tokens/s", Higher: true}, whole)
	return nil
}

// burst runs one stream for each prompt, all at once.
func burst(ctx context.Context, url string, ids [][]int32, generate int) ([]client.Sample, time.Duration, error) {
	out := make([]client.Sample, len(ids))
	var g errgroup.Group
	began := time.Now()
	for i, p := range ids {
		g.Go(func() (err error) {
			out[i], err = client.Complete(ctx, url, client.Request{Prompt: p, Generate: generate})
			return err
		})
	}
	err := g.Wait()
	return out, time.Since(began), err
}
