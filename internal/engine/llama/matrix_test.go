package llama

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
)

// One case of the exactness matrix.
type matrixCase struct {
	layout string // one of layouts
	kvType string
	n      string // prompt length around chunk borders, in words
	beside int    // sequences in each decode call, the tested one included
	holes  bool   // the importing cache is fragmented
	have   bool   // the first chunk comes from the importing cache itself
}

// layout is a model, and whether its whole window is kept.
type layout struct {
	kind testmodel.Kind
	full bool
}

var layouts = map[string]layout{
	"gqa": {testmodel.LlamaGQA, false}, "mla": {testmodel.MLA, false}, "window": {testmodel.Gemma3, false}, "window-full": {testmodel.Gemma3, true},
	"recurrent": {testmodel.Recurrent, false}, "hybrid": {testmodel.Hybrid, false},
}

var axes = struct {
	layouts, types, lengths []string
	besides                 []int
}{
	[]string{"gqa", "mla", "window", "window-full", "recurrent", "hybrid"},
	[]string{"f16", "bf16", "q8_0"},
	[]string{"2", "C", "C+1", "C+2", "3C+7"},
	[]int{1, 2, 8, 32},
}

// possible is false for what cannot be: a first chunk that is there before needs
// positions after it, and a state in chunks.
func (c matrixCase) possible() bool {
	return !c.have || !c.whole() && (c.n == "C+2" || c.n == "3C+7")
}

// whole says that the layout's state goes whole or not at all.
func (c matrixCase) whole() bool {
	return slices.Contains(testmodel.Stateful(), layouts[c.layout].kind)
}

func (c matrixCase) String() string {
	return fmt.Sprintf("%s/%s/n=%s/beside=%d/holes=%v/have=%v", c.layout, c.kvType, c.n, c.beside, c.holes, c.have)
}

// pairs returns every two settings of c that occur together.
func (c matrixCase) pairs() (out [][2]string) {
	s := []string{c.layout, c.kvType, "n" + c.n, fmt.Sprint(c.beside), fmt.Sprint("holes", c.holes), fmt.Sprint("have", c.have)}
	for i := range s {
		for j := range i {
			out = append(out, [2]string{s[j], s[i]})
		}
	}
	return out
}

// matrix returns all cases, or as few as have every pair of settings.
func matrix(all bool) []matrixCase {
	var every []matrixCase
	for _, l := range axes.layouts {
		for _, t := range axes.types {
			for _, n := range axes.lengths {
				for _, b := range axes.besides {
					for k := range 4 {
						if c := (matrixCase{l, t, n, b, k&1 > 0, k&2 > 0}); c.possible() {
							every = append(every, c)
						}
					}
				}
			}
		}
	}
	if all {
		return every
	}
	seen := map[[2]string]bool{}
	var out []matrixCase
	for {
		best, gain := -1, 0
		for i, c := range every {
			g := 0
			for _, p := range c.pairs() {
				if !seen[p] {
					g++
				}
			}
			if g > gain {
				best, gain = i, g
			}
		}
		if best < 0 {
			return out
		}
		out = append(out, every[best])
		for _, p := range every[best].pairs() {
			seen[p] = true
		}
	}
}

// TestTheExactnessMatrix hands a sequence over and compares the two sides. Bytes
// are equal always. Logits are equal bit for bit under the same schedule, which
// includes the order of the cells; in a fragmented cache they are within the
// tolerance, and the likeliest token may differ only where the two likeliest are
// nearer than that. What goes whole or not at all (Stateful) goes the way a text set
// aside does. Pairwise here; every case with TANDEM_SOAK=1.
func TestTheExactnessMatrix(t *testing.T) {
	cases := matrix(os.Getenv("TANDEM_SOAK") == "1")
	if n := len(matrix(false)); n > 40 {
		t.Fatalf("%d cases in the short matrix", n)
	}
	type side struct{ from, to *Backend }
	loaded := map[string]side{}
	for _, c := range cases {
		key := c.layout + c.kvType
		if _, ok := loaded[key]; !ok {
			l := layouts[c.layout]
			cfg := Config{KVType: c.kvType, SWAFull: l.full, Slots: 36, CacheSeqs: -1, Context: 2048, NoDigest: true}
			loaded[key] = side{load(t, l.kind, cfg), load(t, l.kind, cfg)}
		}
		t.Run(c.String(), func(t *testing.T) { c.run(t, loaded[key].from, loaded[key].to) })
	}
}

func (c matrixCase) run(t *testing.T, from, to *Backend) {
	const tested, source, first = id.SeqID(0), id.SeqID(1), id.SeqID(3) // and the neighbours from first on
	chunk := int32(from.info.Chunk)
	n := map[string]int32{"2": 2, "C": chunk, "C+1": chunk + 1, "C+2": chunk + 2, "3C+7": 3*chunk + 7}[c.n]
	have := int32(0)
	if c.have {
		have = chunk
	}
	tokens := prompt(from, int(n), int(n)+c.beside)
	t.Cleanup(func() {
		for s := range id.SeqID(36) {
			from.Drop(s)
			to.Drop(s)
		}
	})
	if c.holes { // two sequences interleaved, then one of them gone
		for p := range int32(120) {
			rows := []engine.Row{{Seq: 2, Token: tokens[0], Pos: p}, {Seq: source, Token: tokens[0], Pos: p}}
			if err := to.Compute(rows); err != nil {
				t.Fatal(err)
			}
		}
		to.Drop(source)
	}
	if have > 0 {
		compute(t, to, source, tokens, 0, have)
		if err := to.Fork(source, tested, have); err != nil {
			t.Fatal(err)
		}
	}
	if c.whole() {
		compute(t, from, tested, tokens, 0, n-1)
		c.moveWhole(t, from, to, tested, n-1)
	} else {
		c.moveChunks(t, from, to, tested, tokens, have)
	}
	last := make([]engine.Token, c.beside)
	for i := range last {
		s := tested
		last[i] = tokens[n-1]
		if i > 0 {
			s = first + id.SeqID(i)
			other := prompt(from, 4, i)
			compute(t, from, s, other, 0, 3)
			compute(t, to, s, other, 0, 3)
			last[i] = other[3]
		}
	}
	for step := range int32(5) {
		var rows []engine.Row
		for i, x := range last {
			if i == 0 {
				rows = append(rows, engine.Row{Seq: tested, Token: x, Pos: n - 1 + step, Logits: true})
			} else {
				rows = append(rows, engine.Row{Seq: first + id.SeqID(i), Token: x, Pos: 3 + step, Logits: true})
			}
		}
		for _, b := range []*Backend{from, to} {
			if err := b.Compute(rows); err != nil {
				t.Fatal(err)
			}
		}
		want, got := from.Logits(0), to.Logits(0)
		top, gap := twoBest(want)
		d := difference(want, got)
		switch other, _ := twoBest(got); {
		case flat(want):
			t.Fatal("the logits are all alike and prove nothing")
		case !c.holes && d != 0:
			t.Fatalf("step %d: logits differ by %g under the same schedule", step, d)
		case !(d <= tolerance):
			t.Fatalf("step %d: logits differ by %g", step, d)
		case other != top && gap > tolerance:
			t.Fatalf("step %d: token %d and not %d, which leads by %g", step, other, top, gap)
		}
		for i := range last {
			best, _ := twoBest(from.Logits(i))
			last[i] = best
		}
	}
}

// moveChunks computes the prompt on one side, hands it over chunk by chunk, but for
// what the other has, and compares the bytes of both.
func (c matrixCase) moveChunks(t *testing.T, from, to *Backend, tested id.SeqID, tokens []engine.Token, have int32) {
	t.Helper()
	chunk := from.info.Chunk
	a := newArena(t, 2*from.ChunkBytes(chunk)+4096)
	out, again := lease(t, a, from.ChunkBytes(chunk)), lease(t, a, from.ChunkBytes(chunk))
	for _, b := range borders(chunk, len(tokens)-1) {
		compute(t, from, tested, tokens, b[0], b[1])
		size, err := from.Export(tested, b[0], b[1], out)
		if err != nil {
			t.Fatal(err)
		}
		if b[0] >= have {
			if err := to.Import(tested, b[0], b[1], out[:size]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := to.Export(tested, b[0], b[1], again); err != nil {
			t.Fatal(err)
		}
		// What the importing side computed itself, with holes, may differ in the last digits.
		if (b[0] >= have || !c.holes) && !bytes.Equal(out[:size], again[:size]) {
			t.Fatalf("chunk %v is not the same on both sides", b)
		}
	}
}

// moveWhole takes a sequence's whole state from one side to the other.
func (c matrixCase) moveWhole(t *testing.T, from, to *Backend, tested id.SeqID, n int32) {
	t.Helper()
	size := from.StateBytes(tested)
	a := newArena(t, 2*size+8192)
	out, again := lease(t, a, size)[:size], lease(t, a, size)[:size]
	if err := from.SaveState(tested, out); err != nil {
		t.Fatal(err)
	}
	if err := to.LoadState(tested, n, out); err != nil {
		t.Fatal(err)
	}
	if err := to.SaveState(tested, again); err != nil || !bytes.Equal(out, again) {
		t.Fatalf("the state is not the same on both sides (%v)", err)
	}
}

// twoBest returns the likeliest token and how far it is before the next.
func twoBest(l []float32) (engine.Token, float32) {
	best, second := 0, -1
	for i := 1; i < len(l); i++ {
		switch {
		case l[i] > l[best]:
			best, second = i, best
		case second < 0 || l[i] > l[second]:
			second = i
		}
	}
	return engine.Token(best), l[best] - l[second]
}
