package llama

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

// BenchmarkPieces tells what a prompt of 1,536 tokens costs in pieces of each
// size. TANDEM_BENCH_MODEL names a GGUF file other than the test model.
func BenchmarkPieces(bm *testing.B) {
	path := os.Getenv("TANDEM_BENCH_MODEL")
	if path == "" {
		var err error
		if path, err = testmodel.Path(testmodel.Gemma3); err != nil {
			bm.Fatal(err)
		}
	}
	b, err := New(Config{LibDir: testmodel.Library(bm), ModelPath: path, Context: 2048, Slots: 2, Threads: 1, NoDigest: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		bm.Fatal(err)
	}
	defer b.Close()
	const n = 1536
	tokens := prompt(b, n, 1)
	for _, size := range []int{16, 32, 64, 128, 256} {
		bm.Run(fmt.Sprint(size), func(bm *testing.B) {
			for bm.Loop() {
				for p := 0; p < n; p += size {
					var rows []engine.Row
					for q := p; q < p+size; q++ {
						rows = append(rows, engine.Row{Token: tokens[q], Pos: int32(q)})
					}
					if err := b.Compute(rows); err != nil {
						bm.Fatal(err)
					}
				}
				b.Drop(0)
			}
			bm.ReportMetric(n*float64(bm.N)/bm.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkPromptAlone tells what a prompt of 1,500 tokens costs in the loop, by
// SoloTarget, interleaved.
func BenchmarkPromptAlone(bm *testing.B) {
	path := os.Getenv("TANDEM_BENCH_MODEL")
	if path == "" {
		bm.Skip("TANDEM_BENCH_MODEL is not set")
	}
	b, err := New(Config{LibDir: testmodel.Library(bm), ModelPath: path, Context: 2048, Slots: 2, Threads: 1, NoDigest: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		bm.Fatal(err)
	}
	defer b.Close()
	speeds := map[time.Duration]float64{}
	for bm.Loop() {
		for _, target := range []time.Duration{1, engine.DefaultSoloTarget} {
			l := engine.New(engine.Config{Backend: b, SoloTarget: target, NoPrefixCache: true})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				l.Run(ctx)
			}()
			for range 2 { // the second one knows the speed
				h := &relay{done: make(chan engine.Result, 1)}
				if _, err := l.Admit(&engine.Request{Tokens: prompt(b, 1500, 1), Gen: &engine.Params{MaxTokens: 1}}, h); err != nil {
					bm.Fatal(err)
				}
				res := <-h.done
				speeds[target] = 1500 / res.Prefill.Seconds()
			}
			cancel()
			<-ended
		}
	}
	bm.ReportMetric(speeds[1], "tokens/s-before")
	bm.ReportMetric(speeds[engine.DefaultSoloTarget], "tokens/s-after")
}
