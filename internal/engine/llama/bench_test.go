package llama

import (
	"os"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
)

// benchModel loads the model that TANDEM_BENCH_MODEL names, or a test model.
func benchModel(b *testing.B) *Backend {
	c := Config{Context: 4096, Slots: 16}
	path := os.Getenv("TANDEM_BENCH_MODEL")
	if path == "" {
		return load(b, testmodel.LlamaGQA, c)
	}
	c.LibDir, c.ModelPath = testmodel.Library(b), path
	m, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	b.Logf("%s: %s, self-test %+v", m.info.Model, m.info.Describe, m.selfTest)
	return m
}

func BenchmarkExport(b *testing.B) {
	m := benchModel(b)
	prefill(b, m, 0, prompt(m, 257, 1))
	a := newArena(b, m.ChunkBytes(256)+4096)
	blob := lease(b, a, m.ChunkBytes(256))
	b.SetBytes(int64(len(blob)))
	for b.Loop() {
		if _, err := m.Export(0, 0, 256, blob); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkImport(b *testing.B) {
	m := benchModel(b)
	prefill(b, m, 0, prompt(m, 257, 1))
	a := newArena(b, m.ChunkBytes(256)+4096)
	blob := lease(b, a, m.ChunkBytes(256))
	if _, err := m.Export(0, 0, 256, blob); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(blob)))
	for b.Loop() {
		if err := m.Import(1, 0, 256, blob); err != nil {
			b.Fatal(err)
		}
		m.Drop(1)
	}
}

func BenchmarkPrefill256(b *testing.B) {
	m := benchModel(b)
	tokens := prompt(m, 257, 1)
	for b.Loop() {
		prefill(b, m, 0, tokens)
		m.Drop(0)
	}
	b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkDecode(b *testing.B) {
	for _, streams := range []int{1, 8} {
		b.Run(map[int]string{1: "1 stream", 8: "8 streams"}[streams], func(b *testing.B) {
			m := benchModel(b)
			tokens := prompt(m, 200, 1)
			pos := int32(len(tokens) - 1)
			for s := range streams {
				prefill(b, m, id.SeqID(s), tokens)
			}
			rows := make([]engine.Row, streams)
			n := 0
			for b.Loop() {
				for s := range rows {
					rows[s] = engine.Row{Seq: id.SeqID(s), Token: tokens[n%200], Pos: pos, Logits: true}
				}
				if err := m.Compute(rows); err != nil {
					b.Fatal(err)
				}
				if n++; n%150 == 0 { // keep the context short
					for s := range rows {
						m.Truncate(id.SeqID(s), int32(len(tokens)-1))
					}
					pos = int32(len(tokens) - 2)
				}
				pos++
			}
			b.ReportMetric(float64(n*streams)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
