package llama

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

func TestASavedStateComesBackBitForBit(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			b := load(t, kind, Config{Context: 2048})
			tokens := prompt(b, 900, 1)
			compute(t, b, 0, tokens, 0, 899)
			a := newArena(t, 4*b.StateBytes(0)+1<<16)
			out, again := lease(t, a, b.ChunkBytes(100)), lease(t, a, b.ChunkBytes(100))
			if _, err := b.Export(0, 799, 899, out); err != nil {
				t.Fatal(err)
			}
			saved := lease(t, a, b.StateBytes(0))
			if err := b.SaveState(0, saved); err != nil {
				t.Fatal(err)
			}
			b.Drop(0)
			compute(t, b, 1, tokens, 0, 50) // its cells are others' now
			if err := b.LoadState(1, 899, saved); err == nil {
				t.Fatal("loaded into a sequence that has positions")
			}
			if err := b.LoadState(2, 899, saved); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Export(2, 799, 899, again); err != nil || !bytes.Equal(out, again) {
				t.Fatalf("not the same bytes (%v)", err)
			}
			if err := b.LoadState(0, 900, saved); err == nil {
				t.Fatal("loaded as other positions")
			}
		})
	}
}

// scored keeps the log probabilities of the two likeliest tokens.
type scored struct {
	relay
	at []*engine.Logprobs
}

func (s *scored) Token(t engine.Token, _ int32, lp *engine.Logprobs) {
	s.tokens, s.at = append(s.tokens, t), append(s.at, lp)
}

// drift is the tolerance along a whole text, whose own KV differs in the last
// digits too.
const drift = 0.05

// The state comes back bit for bit, but in other cells, and sums over cells are
// then made in another order. So a text may part from the undisturbed one, but
// only where the two likeliest tokens were nearer than that explains.
func TestATextThatWasSetAsideIsTheUndisturbedOne(t *testing.T) {
	for _, kind := range testmodel.All() {
		for _, memory := range []int{0, 32 << 20} { // without: computed again
			t.Run(fmt.Sprintf("%v/%d MiB", kind, memory>>20), func(t *testing.T) {
				runs := map[bool][]*scored{}
				for _, crowded := range []bool{false, true} {
					c, ec := Config{Context: 2048}, engine.Config{Deterministic: true}
					if crowded {
						c.Context = 512
						ec.Overcommit, ec.Headroom = true, 16
						if memory > 0 {
							ec.Aside = newArena(t, memory)
						}
					}
					b := load(t, kind, c)
					l := run(t, b, ec)
					for i := range 3 { // 3 × 300 of 512 cells
						h := &scored{relay: relay{done: make(chan engine.Result, 1)}}
						runs[crowded] = append(runs[crowded], h)
						r := &engine.Request{RID: "x", Tokens: prompt(b, 100, i), Gen: &engine.Params{MaxTokens: 200, IgnoreEOS: true, Logprobs: 3}}
						if _, err := l.Admit(r, h); err != nil {
							t.Fatal(err)
						}
					}
					for i, h := range runs[crowded] {
						if res := <-h.done; res.Finish != engine.FinishLength || res.Generated != 200 {
							t.Fatalf("%d: %+v", i, res)
						}
					}
				}
				for i, got := range runs[true] {
					same := 0
					for k, want := range runs[false][i].at {
						top := want.Top
						if d := math.Abs(float64(want.Top[0].Log - got.at[k].Top[0].Log)); d > drift {
							t.Fatalf("text %d, token %d: log probabilities differ by %g", i, k, d)
						}
						if got.tokens[k] != runs[false][i].tokens[k] {
							if gap := top[0].Log - top[1].Log; gap > drift {
								t.Fatalf("text %d: token %d differs, the likeliest led by %g", i, k, gap)
							}
							break
						}
						same++
					}
					t.Logf("text %d: %d of 200 tokens before a near tie", i, same)
				}
			})
		}
	}
}
