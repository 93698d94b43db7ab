package pair

import (
	"math"
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/room"
)

// tolerance is how far two logits may be apart whose prompts were cut elsewhere: the
// library adds in another order then.
const tolerance = 0.05

// twoTurns is a context that has room for both turns at once.
const twoTurns = 2 * llamaContext

// TestASecondTurnOnKeptKVHasTheLogitsOfAFreshPair compares a chat's second turn, which
// both workers start from what they kept of the first, with the same prompt on a pair
// that has nothing.
func TestASecondTurnOnKeptKVHasTheLogitsOfAFreshPair(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			keptP, kept := loadLlamaWith(t, kind, "f16", twoTurns), loadLlamaWith(t, kind, "f16", twoTurns)
			p := NewPrefill(t, keptP, Options{})
			d := NewDecode(t, kept, Options{}, To(p))
			params := engine.Params{MaxTokens: 6, IgnoreEOS: true}
			c := kept.Info().Chunk
			first := words(3*c-params.MaxTokens+1, kept.Info().Vocab) // with the answer decode has three chunks
			out, _, _ := Run(t, p, d, first, params)
			Quiet(t, p, d)
			kept.take()
			second := append(append(slices.Clone(first), out...), words(40, kept.Info().Vocab)[1:]...)
			if _, dc, pc := Run(t, p, d, second, params); dc.Code != room.Done || pc.Code != room.Done {
				t.Fatalf("decode %v, prefill %v", dc, pc)
			}
			Quiet(t, p, d)
			if n := p.Engine.Cache().Reused; int(n) != len(first)-1 {
				t.Fatalf("prefill reused %d tokens of the first turn's %d", n, len(first)-1)
			}

			fresh := loadLlamaWith(t, kind, "f16", twoTurns)
			p2 := NewPrefill(t, loadLlamaWith(t, kind, "f16", twoTurns), Options{})
			d2 := NewDecode(t, fresh, Options{}, To(p2))
			Run(t, p2, d2, second, params)
			Quiet(t, p2, d2)
			// The first row is the prompt's last token; what follows may be another text.
			a, b := kept.take()[0], fresh.take()[0]
			worst, lo, hi := 0.0, math.Inf(1), math.Inf(-1)
			for i := range a {
				worst = max(worst, math.Abs(float64(a[i]-b[i])))
				lo, hi = min(lo, float64(b[i])), max(hi, float64(b[i]))
			}
			if worst > tolerance || hi-lo < 1 {
				t.Fatalf("logits are up to %v apart, the tolerance is %v; they span %v", worst, tolerance, hi-lo)
			}
			t.Logf("logits are up to %.2g apart, they span %.2g", worst, hi-lo)
		})
	}
}
