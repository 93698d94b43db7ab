package llama

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

func TestAForkGoesOnAsIfItHadBeenComputed(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/swa_full=%v", kind, full), func(t *testing.T) {
				b := load(t, kind, Config{SWAFull: full, Context: 2048})
				tokens := prompt(b, 700, 1)
				prefill(t, b, 0, tokens)
				for _, at := range []int32{1, 255, 256, 300, 699} {
					if !b.CanFork(0, at) {
						t.Fatalf("no fork at %d of 699, kept from %d", at, b.Kept(0))
					}
					other := slices.Concat(tokens[:at], prompt(b, 40, 9))
					if err := b.Fork(0, 1, at); err != nil {
						t.Fatal(err)
					}
					if b.Fork(0, 1, at) == nil {
						t.Fatal("forked into a sequence that has positions")
					}
					compute(t, b, 1, other, at, int32(len(other)-1))
					_, got := generate(t, b, 1, other, 4)
					b.Drop(1)
					compute(t, b, 2, other, 0, at)
					compute(t, b, 2, other, at, int32(len(other)-1))
					_, want := generate(t, b, 2, other, 4)
					b.Drop(2)
					for i := range want {
						if d := difference(want[i], got[i]); !(d <= tolerance) {
							t.Fatalf("fork at %d: step %d differs by %v", at, i, d)
						}
					}
				}
				if b.CanFork(0, 700) || b.CanFork(0, 0) || b.CanFork(1, 5) || b.CanFork(99, 5) {
					t.Fatal("forks of what is not there")
				}
			})
		}
	}
}

// compute evaluates [p0, p1) of tokens on s, in pieces that end at chunk borders.
func compute(t testing.TB, b *Backend, s id.SeqID, tokens []engine.Token, p0, p1 int32) {
	t.Helper()
	for p0 < p1 {
		to := min((p0/int32(b.c.Chunk)+1)*int32(b.c.Chunk), p1)
		var rows []engine.Row
		for ; p0 < to; p0++ {
			rows = append(rows, engine.Row{Seq: s, Token: tokens[p0], Pos: p0})
		}
		if err := b.Compute(rows); err != nil {
			t.Fatal(err)
		}
	}
}

// Shared cells of a window's cache cannot be reused until one sharer is gone. So
// many forks of long sequences could fill it up: CanFork says no before.
func TestForksNeverFillTheWindowsCache(t *testing.T) {
	b := load(t, testmodel.Gemma3, Config{Slots: 2, CacheSeqs: 2, Context: 8192})
	if b.window.cells == 0 {
		t.Fatal("the window's cache is as large as the other: this test proves nothing")
	}
	tokens := prompt(b, 1500, 1)
	compute(t, b, 0, tokens, 0, 1500)
	forks := 0
	for s := id.SeqID(1); s < 4; s++ {
		if b.CanFork(0, 1500) {
			if err := b.Fork(0, s, 1500); err != nil {
				t.Fatal(err)
			}
			forks++
		}
	}
	if forks == 0 {
		t.Fatal("not one fork")
	}
	for s := range id.SeqID(4) { // all go on for more than a window
		compute(t, b, s, prompt(b, 2600, int(s)+2), b.lengths[s], b.lengths[s]+900)
	}
	if s := id.SeqID(0); b.CanFork(s, 300) {
		t.Fatalf("fork at 300 of %d: the window begins at %d", b.lengths[s], b.Kept(s))
	}
}

func TestARealSecondTurnReusesTheFirst(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			b := load(t, kind, Config{Context: 2048})
			l := run(t, b, engine.Config{})
			ask := func(tokens []engine.Token) (*relay, engine.Result) {
				h := &relay{done: make(chan engine.Result, 1), queued: map[int32]*kv.Lease{}}
				if _, err := l.Admit(&engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: 30, IgnoreEOS: true}}, h); err != nil {
					t.Fatal(err)
				}
				res := <-h.done
				if res.Finish != engine.FinishLength {
					t.Fatalf("%+v", res)
				}
				return h, res
			}
			first := prompt(b, 600, 1)
			one, _ := ask(first)
			turn := slices.Concat(first, one.tokens, prompt(b, 20, 2))
			if _, res := ask(turn); res.Cached != 629 || res.Computed != 21 {
				t.Fatalf("%+v", res)
			}
			// The same beginning, another end: what both have is there once.
			other := slices.Concat(first[:590], prompt(b, 50, 3))
			if _, res := ask(other); res.Cached != 590 || res.Computed != 50 {
				t.Fatalf("%+v", res)
			}
			if have := l.Cached(turn); have != 512 {
				t.Fatalf("have %d", have)
			}
		})
	}
}
