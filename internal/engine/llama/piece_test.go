package llama

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

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
