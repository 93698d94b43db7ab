package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// wait lets a loop finish what it does: a flush request is answered by a step,
// and this one is in vain because a sequence that ends at once comes with it.
func wait(l *engine.Loop) {
	h := newRecorder()
	if _, err := l.Admit(&engine.Request{Tokens: []engine.Token{300}}, h); err != nil {
		panic(err)
	}
	<-h.done
}

// serve runs one request to its end and checks its text.
func serve(t *testing.T, l *engine.Loop, tokens []engine.Token, n int) engine.Result {
	t.Helper()
	h := newRecorder()
	admit(t, l, &engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: n}}, h)
	res := h.wait(t)
	equal(t, "text", h.tokens, sim.Expect(sim.Config{}, tokens, n))
	return res
}

func TestASecondTurnComputesOnlyItsNewTokens(t *testing.T) {
	for _, window := range []int{0, 300, -1} {
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) {
			l, b := start(t, sim.Config{Window: window}, engine.Config{})
			first := prompt(500, 1)
			if res := serve(t, l, first, 20); res.Cached != 0 || res.Computed != 500 {
				t.Fatalf("%+v", res)
			}
			turn := slices.Concat(first, sim.Expect(sim.Config{}, first, 20), prompt(30, 2))
			// The last token of the first turn was never evaluated.
			if res := serve(t, l, turn, 20); res.Cached != 519 || res.Computed != len(turn)-519 {
				t.Fatalf("%+v", res)
			}
			wait(l)
			// The first turn's sequence became the second's: nothing is kept twice.
			if c := l.Cache(); c.Seqs != 1 || c.Cells != len(turn)+19 || c.Hits != 1 || b.Used() != c.Cells {
				t.Fatalf("%+v, %d used", c, b.Used())
			}
			l.FlushCache()
			wait(l)
			if c := l.Cache(); c.Cells != 0 || c.Seqs != 0 || b.Used() != 0 {
				t.Fatalf("%+v, %d used after a flush", c, b.Used())
			}
		})
	}
}

func TestPromptsThatPartAnywhereShareWhatComesBefore(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	base := prompt(700, 1)
	serve(t, l, base, 5)
	for _, at := range []int{1, 15, 16, 100, 255, 256, 257, 511, 699} {
		tokens := slices.Clone(base)
		tokens[at] += 1
		want := at
		if at < 16 {
			want = 0 // not worth it
		}
		if res := serve(t, l, tokens, 5); res.Cached != want || res.Computed != 700-want {
			t.Errorf("parts at %d: %+v", at, res)
		}
	}
	if res := serve(t, l, base, 5); res.Cached != 699 || res.Computed != 1 {
		t.Errorf("the same prompt again: %+v", res)
	}
}

func TestFourEqualPromptsAdmittedTogetherAreComputedOnce(t *testing.T) {
	rows := 0
	l, _ := start(t, sim.Config{Hook: func(op sim.Op) error {
		rows += op.Rows
		return nil
	}}, engine.Config{})
	tokens := prompt(500, 1)
	var hs []*recorder
	for range 4 {
		h := newRecorder()
		hs = append(hs, h)
		admit(t, l, &engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: 10}}, h)
	}
	computed := 0
	for _, h := range hs {
		computed += h.wait(t).Computed
		equal(t, "text", h.tokens, sim.Expect(sim.Config{}, tokens, 10))
	}
	if computed != 499+4 || rows > 499+4*10 {
		t.Fatalf("%d prompt tokens in %d rows", computed, rows)
	}
}

func TestOnesAfterAnotherReserveOnlyTheirOwnCells(t *testing.T) {
	for _, det := range []bool{false, true} {
		for _, imported := range []bool{false, true} {
			t.Run(fmt.Sprintf("deterministic=%v imported=%v", det, imported), func(t *testing.T) {
				sc := sim.Config{Cells: 560}
				l, _ := start(t, sc, engine.Config{Deterministic: det})
				source, _ := start(t, sim.Config{}, engine.Config{})
				tokens := prompt(500, 1)
				gen := &engine.Params{MaxTokens: 10}
				hs := []*recorder{newRecorder(), newRecorder(), newRecorder(), newRecorder()}
				r := &engine.Request{Tokens: tokens, Gen: gen}
				if imported {
					r.KV = engine.Imported
				}
				first := admit(t, l, r, hs[0])
				for _, h := range hs[1:] {
					admit(t, l, &engine.Request{Tokens: tokens, Gen: gen, After: first}, h)
				}
				if held, _ := l.Cells(); held != 510+3*11 {
					t.Fatalf("%d cells held", held)
				}
				if imported {
					for _, c := range handOver(t, source, tokens).chunks {
						if err := first.Import(c.p0, c.p1, c.b); err != nil {
							t.Fatal(err)
						}
					}
				}
				for i, h := range hs {
					res := h.wait(t)
					equal(t, "text", h.tokens, sim.Expect(sim.Config{}, tokens, 10))
					if i > 0 && (res.Cached != 499 || res.Computed != 1) {
						t.Fatalf("%+v", res)
					}
				}
			})
		}
	}
}

// State without positions is that of its end: who comes too late cannot share it,
// and must not have counted on it.
func TestOnesAfterAnotherHaveCellsOfTheirOwnWhereOnlyTheEndCanBeShared(t *testing.T) {
	tokens, gen := prompt(500, 1), &engine.Params{MaxTokens: 10}
	for _, cells := range []int{580, 1100} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d cells, late=%v", cells, late), func(t *testing.T) {
				l, _ := start(t, sim.Config{Window: -1, Cells: cells}, engine.Config{})
				begin, lead, h := newRecorder(), newRecorder(), newRecorder()
				var first *engine.Seq
				var refused error
				follow := func() {
					_, refused = l.Admit(&engine.Request{Tokens: tokens, Gen: gen, After: first}, h)
				}
				// From the loop's own goroutine, so that nothing happens in between.
				begin.onToken = func(engine.Token, int32) {
					if first, refused = l.Admit(&engine.Request{Tokens: tokens, Gen: gen}, lead); refused == nil && !late {
						follow()
					}
				}
				lead.onToken = func(_ engine.Token, p int32) {
					if late && p == 502 {
						follow()
					}
				}
				admit(t, l, &engine.Request{Tokens: prompt(10, 2), Gen: &engine.Params{MaxTokens: 1}}, begin)
				begin.wait(t)
				lead.wait(t)
				equal(t, "the first text", lead.tokens, sim.Expect(sim.Config{}, tokens, 10))
				if cells == 580 {
					if !errors.Is(refused, engine.ErrNoCells) {
						t.Fatalf("admitted without cells: %v", refused)
					}
					return
				}
				want := 499
				if late {
					want = 0
				}
				if res := h.wait(t); res.Cached != want || res.Computed != 500-want {
					t.Fatalf("%+v (%v)", res, refused)
				}
				equal(t, "the text", h.tokens, sim.Expect(sim.Config{}, tokens, 10))
			})
		}
	}
}

func TestWhatComesAfterAnotherEndsWithItBeforeThePromptIsWhole(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	tokens := prompt(500, 1)
	lead, h := newRecorder(), newRecorder()
	first := admit(t, l, &engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 10}}, lead)
	admit(t, l, &engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: 10}, After: first}, h)
	first.Cancel(nil)
	lead.wait(t)
	if res := h.wait(t); res.Finish != engine.FinishFailed || !errors.Is(res.Err, engine.ErrEnded) {
		t.Fatalf("%+v", res)
	}
	if _, err := l.Admit(&engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: 1}, After: first}, newRecorder()); !errors.Is(err, engine.ErrEnded) {
		t.Fatal(err)
	}
}

func TestWhatDecodeHasNeedNotTravel(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	source, _ := start(t, sim.Config{}, engine.Config{})
	serve(t, l, prompt(600, 1), 3)
	tokens := append(prompt(590, 1), prompt(300, 2)...)
	have := l.Cached(tokens)
	if have != 512 || l.Cached(prompt(513, 1)) != 256 || l.Cached(prompt(514, 1)) != 512 || l.Cached(prompt(600, 2)) != 0 || l.Cached(nil) != 0 {
		t.Fatalf("have %d", have)
	}
	h := newRecorder()
	s := admit(t, l, &engine.Request{Tokens: tokens, KV: engine.Imported, Have: int32(have), Gen: &engine.Params{MaxTokens: 10}}, h)
	if err := s.Import(0, 256, nil); err == nil {
		t.Fatal("imported what it has")
	}
	for _, c := range handOver(t, source, tokens).chunks[2:] {
		if err := s.Import(c.p0, c.p1, c.b); err != nil {
			t.Fatal(err)
		}
	}
	if res := h.wait(t); res.Cached != 512 || res.Imported != 889-512 || res.Computed != 1 {
		t.Fatalf("%+v", res)
	}
	equal(t, "text", h.tokens, sim.Expect(sim.Config{}, tokens, 10))
	l.FlushCache()
	wait(l)
	if _, err := l.Admit(&engine.Request{Tokens: tokens, KV: engine.Imported, Have: 512, Gen: &engine.Params{MaxTokens: 10}}, newRecorder()); !errors.Is(err, engine.ErrHaveGone) {
		t.Fatal(err)
	}
}

func TestCachedCellsAreGivenUpByChunkFromTheEndOldestFirst(t *testing.T) {
	l, b := start(t, sim.Config{Cells: 2000}, engine.Config{})
	serve(t, l, prompt(900, 1), 1)
	serve(t, l, prompt(900, 2), 1)
	serve(t, l, prompt(300, 3), 1) // needs 301 of the 200 that are free
	wait(l)
	if c := l.Cache(); c.Cells > 2000 || c.Seqs != 3 || b.Used() != c.Cells {
		t.Fatalf("%+v, %d used", c, b.Used())
	}
	if old, young := l.Cached(prompt(900, 1)), l.Cached(prompt(900, 2)); old != 768 || young != 768 {
		t.Fatalf("the old one has %d, the young one %d", old, young)
	}
	serve(t, l, prompt(1200, 4), 1)
	if old, young := l.Cached(prompt(900, 1)), l.Cached(prompt(900, 2)); old != 0 || young == 0 {
		t.Fatalf("the old one has %d, the young one %d", old, young)
	}
}

func TestAPrefillWorkerExportsWhatItDidNotCompute(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	d, _ := start(t, sim.Config{}, engine.Config{})
	handOver(t, l, prompt(700, 1))
	tokens := append(prompt(600, 1), prompt(100, 2)...)
	from := newRecorder()
	admit(t, l, &engine.Request{Tokens: tokens, Export: true}, from)
	if res := from.wait(t); res.Cached != 600 || res.Computed != 99 || len(from.chunks) != 3 {
		t.Fatalf("%+v, %d chunks", res, len(from.chunks))
	}
	to := newRecorder()
	s := admit(t, d, &engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 10}}, to)
	for _, c := range from.chunks {
		if err := s.Import(c.p0, c.p1, c.b); err != nil {
			t.Fatal(err)
		}
	}
	to.wait(t)
	equal(t, "text", to.tokens, sim.Expect(sim.Config{}, tokens, 10))
}

func BenchmarkCachedLongPrompt(b *testing.B) {
	backend, _ := sim.New(sim.Config{Cells: 1 << 20, Slots: 32})
	l := engine.New(engine.Config{Backend: backend})
	stop := run(b, l)
	defer stop()
	for i := range engine.Token(32) {
		h := newRecorder()
		tokens := append(prompt(30000, 1), prompt(10, i)...)
		if _, err := l.Admit(&engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: 1}}, h); err != nil {
			b.Fatal(err)
		}
		<-h.done
	}
	tokens := prompt(30000, 1)
	for b.Loop() {
		if l.Cached(tokens) == 0 {
			b.Fatal()
		}
	}
}
