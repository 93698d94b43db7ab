package pair

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/llama"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// recorder is a backend that keeps a copy of every row's logits.
type recorder struct {
	engine.Backend
	mu   sync.Mutex
	kept [][]float32
}

func (r *recorder) Compute(rows []engine.Row) error {
	err := r.Backend.Compute(rows)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, row := range rows {
		if row.Logits && err == nil {
			r.kept = append(r.kept, slices.Clone(r.Backend.Logits(i)))
		}
	}
	return err
}

// take returns the logits kept since the last call.
func (r *recorder) take() [][]float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.kept
	r.kept = nil
	return kept
}

const llamaContext = 1024

func loadLlama(t *testing.T, kind testmodel.Kind, kvType string) *recorder {
	t.Helper()
	return loadLlamaWith(t, kind, kvType, llamaContext)
}

func loadLlamaWith(t *testing.T, kind testmodel.Kind, kvType string, context int) *recorder {
	t.Helper()
	path, err := testmodel.Path(kind)
	if err != nil {
		t.Fatal(err)
	}
	b, err := llama.New(llama.Config{LibDir: testmodel.Library(t), ModelPath: path, Context: context, Slots: 2, Threads: 1, KVType: kvType})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &recorder{Backend: b}
}

// TestLogitsThroughAPairEqualThoseOfServe compares, bit for bit, the logits that
// decode computes on handed-over KV with those of one worker under the same
// schedule, for both layouts, all KV types, and lengths around chunk borders.
func TestLogitsThroughAPairEqualThoseOfServe(t *testing.T) {
	const generated = 6
	for _, kind := range testmodel.Kinds() {
		for _, kvType := range []string{"f16", "bf16", "q8_0"} {
			t.Run(fmt.Sprintf("%v %s", kind, kvType), func(t *testing.T) {
				testmodel.Library(t)
				alone := Options{Deterministic: true}
				backendP, backendD, backendS := loadLlama(t, kind, kvType), loadLlama(t, kind, kvType), loadLlama(t, kind, kvType)
				p := NewPrefill(t, backendP, alone)
				d := NewDecode(t, backendD, alone, To(p))
				serve := NewDecode(t, backendS, alone, nil)
				c := backendP.Info().Chunk
				for _, n := range []int{1, 2, c - 1, c, c + 1, c + 2, 3*c + 7, llamaContext - generated} {
					tokens := words(n, backendP.Info().Vocab)
					params := engine.Params{MaxTokens: generated, IgnoreEOS: true}
					got, dc, pc := Run(t, p, d, tokens, params)
					if dc.Code != room.Done || pc.Code != room.Done {
						t.Fatalf("n = %d: decode %v, prefill %v", n, dc, pc)
					}
					g, refused := serve.Begin(decode.Request{RID: id.NewRID(), Tokens: tokens, Params: params, Due: time.Now().Add(Wait)})
					if refused != nil {
						t.Fatal(refused)
					}
					want, _, _ := Collect(t, g)
					mustEqual(t, n, backendD.take(), backendS.take())
					if !slices.Equal(got, want) {
						t.Fatalf("n = %d: tokens %v through the pair, %v alone", n, got, want)
					}
					Quiet(t, p, d)
				}
			})
		}
	}
}

// words returns n ordinary tokens, beginning with BOS as prompts do.
func words(n, vocab int) []engine.Token {
	out := make([]engine.Token, n)
	out[0] = 1
	for i := 1; i < n; i++ {
		out[i] = engine.Token(262 + (i*i*7+i*13)%(vocab-270))
	}
	return out
}

func mustEqual(t *testing.T, n int, pair, alone [][]float32) {
	t.Helper()
	if len(pair) != len(alone) || len(pair) == 0 {
		t.Fatalf("n = %d: %d rows of logits through the pair, %d alone", n, len(pair), len(alone))
	}
	for i := range pair {
		lo, hi := float32(math.Inf(1)), float32(math.Inf(-1))
		for k := range pair[i] {
			if pair[i][k] != alone[i][k] {
				t.Fatalf("n = %d, row %d: logit %d is %v through the pair, %v alone", n, i, k, pair[i][k], alone[i][k])
			}
			lo, hi = min(lo, pair[i][k]), max(hi, pair[i][k])
		}
		if hi-lo < 1 {
			t.Fatalf("n = %d, row %d: the logits span only %v: the oracle is degenerate", n, i, hi-lo)
		}
	}
}
