package llama

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// tolerance of logits after a hand-over: the KV is equal bit for bit, but it may
// lie in other cells, and sums over cells are then made in another order.
const tolerance = 0.02

func TestHandedOverKVIsEqualBitForBitAndGivesTheSameLogits(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		for _, typ := range []string{"f16", "bf16", "q8_0"} {
			for _, full := range []bool{false, true} {
				if full && kind == testmodel.LlamaGQA {
					continue
				}
				t.Run(fmt.Sprintf("%v/%s/swa_full=%v", kind, typ, full), func(t *testing.T) {
					c := Config{KVType: typ, SWAFull: full}
					from, to := load(t, kind, c), load(t, kind, c)
					if from.info.HandOver != "" || from.info.Layout != to.info.Layout {
						t.Fatalf("%q, %v, %v", from.info.HandOver, from.info.Layout, to.info.Layout)
					}
					if d := from.selfTest; !d.Ran || d.Difference > 1e-4 {
						t.Errorf("self-test: %+v", d)
					}
					ch := from.info.Chunk
					for _, n := range []int{1, 2, ch - 1, ch, ch + 1, 3*ch + 7, from.info.Cells - 1} {
						handOver(t, from, to, n)
					}
				})
			}
		}
	}
}

// handOver computes a prompt of n tokens on one backend, exports and imports it
// chunk by chunk as it comes, and compares bytes and logits.
func handOver(t *testing.T, from, to *Backend, n int) {
	t.Helper()
	tokens := prompt(from, n, n)
	a := newArena(t, 3*from.ChunkBytes(from.info.Chunk)+4096)
	out, again := lease(t, a, from.ChunkBytes(from.info.Chunk)), lease(t, a, from.ChunkBytes(from.info.Chunk))
	end := n - 1
	for _, c := range borders(from.info.Chunk, end) {
		var rows []engine.Row
		for p := c[0]; p < c[1]; p++ {
			rows = append(rows, engine.Row{Seq: 1, Token: tokens[p], Pos: p})
		}
		if err := from.Compute(rows); err != nil {
			t.Fatal(err)
		}
		size := from.ChunkBytes(int(c[1] - c[0]))
		if m, err := from.Export(1, c[0], c[1], out); err != nil || m != size {
			t.Fatalf("n=%d export %v: %d, %v", n, c, m, err)
		}
		if err := to.Import(2, c[0], c[1], out[:size]); err != nil {
			t.Fatalf("n=%d import %v: %v", n, c, err)
		}
		if _, err := to.Export(2, c[0], c[1], again); err != nil {
			t.Fatalf("n=%d export again %v: %v", n, c, err)
		}
		if !bytes.Equal(out[:size], again[:size]) {
			t.Fatalf("n=%d: imported KV of %v is not the exported one", n, c)
		}
	}
	steps := min(20, from.info.Cells-n+1)
	_, want := generate(t, from, 1, tokens, steps)
	_, got := generate(t, to, 2, tokens, steps)
	for i := range want {
		d := difference(want[i], got[i])
		if !(d <= tolerance) {
			t.Fatalf("n=%d: logits of step %d differ by %v", n, i, d)
		}
		if i == 0 && flat(want[i]) {
			t.Fatalf("n=%d: the logits are all alike and prove nothing", n)
		}
	}
	from.Drop(1)
	to.Drop(2)
}

func flat(l []float32) bool {
	lo, hi := l[0], l[0]
	for _, x := range l {
		lo, hi = min(lo, x), max(hi, x)
	}
	return hi-lo < 1
}

func TestAFragmentedCacheTakesAndGivesKVInOrder(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			from := load(t, kind, Config{})
			// A cache with holes: three sequences interleaved, then two of them dropped,
			// so that new positions wrap around and lie out of order.
			to := load(t, kind, Config{Slots: 4, Context: 1024})
			var rows []engine.Row
			for p := range int32(300) {
				for s := range 3 {
					rows = append(rows, engine.Row{Seq: id.SeqID(s), Token: prompt(to, 1, s)[0], Pos: p})
				}
				if len(rows) >= 200 {
					if err := to.Compute(rows); err != nil {
						t.Fatal(err)
					}
					rows = rows[:0]
				}
			}
			if err := to.Compute(rows); err != nil {
				t.Fatal(err)
			}
			to.Drop(0)
			to.Drop(2)
			tokens := prompt(from, 700, 5)
			prefill(t, from, 0, tokens)
			a := newArena(t, 3*from.ChunkBytes(256)+4096)
			out, again := lease(t, a, from.ChunkBytes(256)), lease(t, a, from.ChunkBytes(256))
			from.Drop(0)
			for _, c := range borders(256, len(tokens)-1) {
				var rows []engine.Row
				for p := c[0]; p < c[1]; p++ {
					rows = append(rows, engine.Row{Seq: 0, Token: tokens[p], Pos: p})
				}
				if err := from.Compute(rows); err != nil {
					t.Fatal(err)
				}
				n, err := from.Export(0, c[0], c[1], out)
				if err != nil {
					t.Fatal(err)
				}
				if err := to.Import(3, c[0], c[1], out[:n]); err != nil {
					t.Fatal(err)
				}
				if _, err := to.Export(3, c[0], c[1], again); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out[:n], again[:n]) {
					t.Fatalf("chunk %v is not the same", c)
				}
			}
			_, want := generate(t, from, 0, tokens, 10)
			_, got := generate(t, to, 3, tokens, 10)
			for i := range want {
				if d := difference(want[i], got[i]); !(d <= tolerance) {
					t.Fatalf("step %d differs by %v", i, d)
				}
			}
		})
	}
}

// The library was seen to hang on a cell count and to take changed positions
// silently: see kv.Template.Verify. Here the same blobs meet the real library.
func TestAChangedHeaderNeverReachesTheLibrary(t *testing.T) {
	b := load(t, testmodel.Gemma3, Config{})
	tokens := prompt(b, 40, 1)
	prefill(t, b, 0, tokens)
	a := newArena(t, b.ChunkBytes(39)+4096)
	blob := lease(t, a, b.ChunkBytes(39))
	if _, err := b.Export(0, 0, 39, blob); err != nil {
		t.Fatal(err)
	}
	if err := b.template.Verify(blob, 0, 39, kv.CanonicalSeq); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 4, 8, 12, 16, 17, 19, 20, 24, 16 + 39*12, 20 + 39*12, 24 + 39*12, 28 + 39*12} {
		for _, v := range []byte{0x00, 0x01, 0x7f, 0xff} {
			if blob[at] == v {
				continue
			}
			old := blob[at]
			blob[at] = v
			if err := b.Import(1, 0, 39, blob); err == nil {
				t.Fatalf("byte %d = %#x was accepted", at, v)
			}
			blob[at] = old
		}
	}
	if err := b.Import(1, 0, 39, blob); err != nil {
		t.Fatal(err)
	}
	if err := b.Import(1, 0, 39, blob); err == nil {
		t.Fatal("imported twice")
	}
}

// A sequence that ends frees low cells, and the next piece of another sequence's
// chunk goes there: the library then writes the chunk's rows out of order. Logits
// cannot show it (a key carries its rotation, and a sum has no order), but the
// first layer's rows depend on token and position alone: they must be, bit for
// bit, those of a clean cache.
func TestAChunkComputedIntoFreedCellsLeavesInOrder(t *testing.T) {
	for kind, section := range map[testmodel.Kind]int{testmodel.LlamaGQA: 0, testmodel.Gemma3: 1} {
		t.Run(kind.String(), func(t *testing.T) {
			b, clean := load(t, kind, Config{}), load(t, kind, Config{})
			tokens := prompt(b, 256, 3)
			compute := func(b *Backend, s id.SeqID, p0, p1 int32) {
				t.Helper()
				var rows []engine.Row
				for p := p0; p < p1; p++ {
					rows = append(rows, engine.Row{Seq: s, Token: tokens[p], Pos: p})
				}
				if err := b.Compute(rows); err != nil {
					t.Fatal(err)
				}
			}
			compute(b, 2, 0, 100)
			compute(b, 0, 0, 128)
			b.Drop(2)
			compute(b, 0, 128, 256)
			compute(clean, 0, 0, 128)
			compute(clean, 0, 128, 256)

			a := newArena(t, 3*b.ChunkBytes(256)+4096)
			raw, got, want := lease(t, a, b.ChunkBytes(256)), lease(t, a, b.ChunkBytes(256)), lease(t, a, b.ChunkBytes(256))
			if _, err := b.exportRaw(0, 0, 256, raw); err != nil {
				t.Fatal(err)
			}
			if b.template.Verify(raw, 0, 256, int32(b.exportSpare())) == nil {
				t.Fatal("the cells are in order: this test proves nothing")
			}
			if _, err := b.Export(0, 0, 256, got); err != nil {
				t.Fatal(err)
			}
			if _, err := clean.Export(0, 0, 256, want); err != nil {
				t.Fatal(err)
			}
			lo, hi := firstRows(b.template, section, 256)
			if !bytes.Equal(got[lo:hi], want[lo:hi]) {
				t.Fatal("rows are not at their positions")
			}
		})
	}
}

// firstRows returns where the first K rows of a section lie in a blob.
func firstRows(t *kv.Template, section, n int) (lo, hi int) {
	off := 8
	for i, s := range t.Sections {
		off += 16 + 12*n
		if i == section {
			return off + 12, off + 12 + n*int(s.K[0].Row)
		}
		for _, x := range append(append([]kv.Tensor(nil), s.K...), s.V...) {
			off += 12 + n*int(x.Row)
		}
	}
	panic("no such section")
}
