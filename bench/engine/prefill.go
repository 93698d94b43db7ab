package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tandem-llm/tandem/bench/internal/client"
)

// prefillTest measures tokens per second of prompts alone: their length over TTFT,
// which the evaluation of one token's logits is part of on every system.
func (b *bench) prefillTest(ctx context.Context) error {
	f, systems, err := b.start(ctx, size{slots: 1, tokens: slices.Max(b.prefill) + 2, single: b.threads})
	if err != nil {
		return err
	}
	defer f.Stop()
	text := promptsOf(systems)
	for _, n := range b.prefill {
		rate := series{}
		for i := -1; i < b.pairs; i++ {
			ids, err := text.next(ctx, n)
			if err != nil {
				return err
			}
			texts := map[string][]client.Sample{}
			for _, s := range rotated(systems, i) {
				x, err := client.Complete(ctx, s.url, client.Request{Prompt: ids, Generate: 1})
				if err != nil {
					return fmt.Errorf("%s: %w\n%s", s.name, err, f.Logs())
				}
				if err := same(s.name, x, n, 1, true); err != nil {
					return err
				}
				if texts[s.name] = []client.Sample{x}; i >= 0 {
					rate.add(s.name, float64(n)/x.TTFT().Seconds())
				}
			}
			b.rep.compare(fmt.Sprintf("prefill, %d tokens", n), texts)
			progress("prefill, %d tokens: pair %d of %d", n, i+1, b.pairs)
		}
		progressed()
		b.rep.add(row{Test: "prefill", Name: fmt.Sprintf("prefill, %d tokens", n), Unit: "tokens/s", Higher: true, Aim: speedAim, AimOf: serve}, rate)
	}
	return nil
}
