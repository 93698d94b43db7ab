package llama

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
)

// onStateful runs a test on the models that have state without positions.
func onStateful(t *testing.T, test func(t *testing.T, kind testmodel.Kind)) {
	for _, kind := range testmodel.Stateful() {
		t.Run(kind.String(), func(t *testing.T) { test(t, kind) })
	}
}

// alike fails the test unless two runs' logits agree step by step.
func alike(t *testing.T, what string, want, got [][]float32) {
	t.Helper()
	for i := range want {
		if flat(want[i]) {
			t.Fatalf("%s: step %d: the logits are all alike and prove nothing", what, i)
		}
		if d := difference(want[i], got[i]); !(d <= tolerance) {
			t.Fatalf("%s: step %d differs by %g", what, i, d)
		}
	}
}

// alone computes a prompt on an idle backend and goes on for n steps.
func alone(t *testing.T, b *Backend, s id.SeqID, tokens []engine.Token, n int) ([]engine.Token, [][]float32) {
	t.Helper()
	prefill(t, b, s, tokens)
	out, logits := generate(t, b, s, tokens, n)
	b.Drop(s)
	return out, logits
}

func TestAModelWithStateIsLoadedAndItsHandOverRefusedWithTheReason(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{})
		if why := b.info.HandOver; !strings.Contains(why, kind.String()) || !strings.Contains(why, "not stored by position") || b.info.Window != ended {
			t.Fatalf("%q, window %d", why, b.info.Window)
		}
		if b.selfTest.Ran || b.ChunkBytes(256) != 0 {
			t.Fatalf("%+v, %d bytes", b.selfTest, b.ChunkBytes(256))
		}
		prefill(t, b, 0, prompt(b, 40, 1))
		blob := make([]byte, 1<<20)
		if _, err := b.Export(0, 0, 39, blob); err == nil || err.Error() != b.info.HandOver {
			t.Errorf("export: %v", err)
		}
		if err := b.Import(1, 0, 39, blob); err == nil || err.Error() != b.info.HandOver {
			t.Errorf("import: %v", err)
		}
		l := engine.New(engine.Config{Backend: b})
		for _, r := range []*engine.Request{{Tokens: prompt(b, 40, 1), Export: true}, {Tokens: prompt(b, 40, 1), KV: engine.Imported, Gen: &engine.Params{MaxTokens: 1}}} {
			if _, err := l.Admit(r, &relay{}); err == nil || !strings.Contains(err.Error(), b.info.HandOver) {
				t.Errorf("admitted: %v", err)
			}
		}
	})
}

// Before a large file is hashed, and a context made.
func TestWhoMustHandOverHearsAtOnceThatAModelCannot(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		path, err := testmodel.Path(kind)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Config{LibDir: testmodel.Library(t), ModelPath: path, MustHandOver: true, Log: slog.New(slog.DiscardHandler)})
		var no *engine.NoHandOverError
		if !errors.As(err, &no) || no.Info.Path != path || !strings.Contains(no.Info.HandOver, kind.String()) || no.Info.Arch == "" {
			t.Fatalf("%v", err)
		}
	})
}

func TestAModelWithStateDecodesAloneAsBesideOthers(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{Slots: 6, Context: 2048})
		tokens := prompt(b, 600, 1)
		text, want := alone(t, b, 0, tokens, 24)
		if again, same := alone(t, b, 3, tokens, 24); !slices.Equal(text, again) || difference(want[23], same[23]) != 0 {
			t.Fatal("the same prompt on an idle backend is not bit for bit the same")
		}
		slices.Sort(text)
		if n := len(slices.Compact(slices.Clone(text))); n < 8 {
			t.Fatalf("%d different tokens in 24: degenerate", n)
		}
		// Rows of a prompt and of running streams share each call, in an order that is
		// not that of the sequences: the library cuts such a call in pieces of equal
		// length, and must give each row its own logits back.
		const steps = 30
		stream := func(s id.SeqID, step int32) engine.Row {
			return engine.Row{Seq: s, Token: 300 + engine.Token(s), Pos: 49 + step, Logits: true}
		}
		var undisturbed [3][][]float32
		for s := range id.SeqID(3) {
			prefill(t, b, s, prompt(b, 50, 10+int(s)))
			for step := range int32(steps) {
				if err := b.Compute([]engine.Row{stream(s, step)}); err != nil {
					t.Fatal(err)
				}
				undisturbed[s] = append(undisturbed[s], slices.Clone(b.Logits(0)))
			}
			b.Drop(s)
			prefill(t, b, s, prompt(b, 50, 10+int(s)))
		}
		var beside [3][][]float32
		for step := range int32(steps) {
			rows := []engine.Row{stream(2, step)}
			for p := step * 20; p < min(step*20+20, 599); p++ {
				rows = append(rows, engine.Row{Seq: 5, Token: tokens[p], Pos: p})
			}
			rows = append(rows, stream(1, step), stream(0, step))
			if err := b.Compute(rows); err != nil {
				t.Fatal(err)
			}
			for s, row := range []int{len(rows) - 1, len(rows) - 2, 0} {
				beside[s] = append(beside[s], slices.Clone(b.Logits(row)))
			}
		}
		for s := range undisturbed {
			alike(t, fmt.Sprintf("stream %d", s), undisturbed[s], beside[s])
		}
		_, got := generate(t, b, 5, tokens, 24)
		alike(t, "beside others", want, got)
	})
}

func TestAStateIsForkedAtItsEndAndNowhereElse(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{Slots: 4, Context: 4096})
		tokens := prompt(b, 400, 1)
		turns := [][]engine.Token{slices.Concat(tokens[:399], prompt(b, 30, 2)), slices.Concat(tokens[:399], prompt(b, 30, 3)), tokens}
		var want [][][]float32
		for _, turn := range turns {
			compute(t, b, 3, turn, 0, 399)
			compute(t, b, 3, turn, 399, int32(len(turn)-1))
			_, logits := generate(t, b, 3, turn, 4)
			want = append(want, logits)
			b.Drop(3)
		}
		compute(t, b, 0, tokens, 0, 399)
		for _, at := range []int32{1, 256, 398, 400} {
			if b.CanFork(0, at) || b.Fork(0, 1, at) == nil {
				t.Fatalf("forked at %d of 399", at)
			}
		}
		for _, s := range []id.SeqID{1, 2} {
			if err := b.Fork(0, s, 399); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range []id.SeqID{1, 2} {
			compute(t, b, s, turns[i], 399, int32(len(turns[i])-1))
			_, got := generate(t, b, s, turns[i], 4)
			alike(t, fmt.Sprintf("fork %d", s), want[i], got)
		}
		_, got := generate(t, b, 0, turns[2], 4)
		alike(t, "what was forked", want[2], got)

		// A fork outlives what it was made of.
		b.Drop(0)
		b.Drop(1)
		compute(t, b, 0, tokens, 0, 399)
		if err := b.Fork(0, 1, 399); err != nil {
			t.Fatal(err)
		}
		b.Drop(0)
		compute(t, b, 0, prompt(b, 200, 7), 0, 199)
		_, got = generate(t, b, 1, turns[2], 4)
		alike(t, "a fork whose origin is gone", want[2], got)
	})
}

// A recurrent state that is cut would go on from the wrong state, and nothing
// would show it: the text only gets worse.
func TestAStateThatCannotBeCutIsGone(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{})
		tokens := prompt(b, 300, 1)
		_, want := alone(t, b, 1, tokens, 2)
		compute(t, b, 0, tokens, 0, 299)
		b.Truncate(0, 200)
		if err := b.Compute([]engine.Row{{Seq: 0, Token: 5, Pos: 200}}); err == nil {
			t.Fatal("it goes on from a position whose state is not there")
		}
		_, got := alone(t, b, 0, tokens, 2)
		alike(t, "afterwards", want, got)

		// So is that of a call that was interrupted; its neighbours are untouched.
		compute(t, b, 2, tokens, 0, 299)
		var rows []engine.Row
		for p, x := range prompt(b, 500, 2) {
			rows = append(rows, engine.Row{Seq: 0, Token: x, Pos: int32(p)})
		}
		over := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					b.Interrupt()
				}
			}
		})
		err := b.Compute(rows)
		close(over)
		wg.Wait()
		if !errors.Is(err, ErrInterrupted) || b.lengths[0] != 0 {
			t.Fatalf("%v, %d positions", err, b.lengths[0])
		}
		_, got = alone(t, b, 0, tokens, 2)
		alike(t, "after an interrupt", want, got)
		_, got = generate(t, b, 2, tokens, 2)
		alike(t, "beside an interrupt", want, got)
	})
}

func TestAStateSavedAndLoadedIsTheSameBytesAndGoesOn(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{Context: 2048})
		tokens := prompt(b, 500, 1)
		_, want := alone(t, b, 0, tokens, 8)
		compute(t, b, 2, tokens, 0, 499)
		size := b.StateBytes(2)
		a := newArena(t, 2*size+1<<16)
		saved, again := lease(t, a, size)[:size], lease(t, a, size)[:size]
		if err := b.SaveState(2, saved); err != nil {
			t.Fatal(err)
		}
		b.Drop(2)
		compute(t, b, 1, prompt(b, 50, 3), 0, 49) // its cells and its state's place are another's now
		if b.LoadState(1, 499, saved) == nil || b.LoadState(2, 498, saved) == nil {
			t.Fatal("loaded where it does not belong")
		}
		if err := b.LoadState(2, 499, saved); err != nil {
			t.Fatal(err)
		}
		if err := b.SaveState(2, again); err != nil || !bytes.Equal(saved, again) {
			t.Fatalf("not the same bytes (%v)", err)
		}
		_, got := generate(t, b, 2, tokens, 8)
		alike(t, "a state that was loaded", want, got)
	})
}

// converse asks a loop and returns what it wrote.
func converse(t *testing.T, l *engine.Loop, r *engine.Request) (*scored, engine.Result) {
	t.Helper()
	h := &scored{relay: relay{done: make(chan engine.Result, 1)}}
	if _, err := l.Admit(r, h); err != nil {
		t.Fatal(err)
	}
	return h, <-h.done
}

func saying(tokens []engine.Token, n int) *engine.Request {
	return &engine.Request{RID: "x", Tokens: tokens, Gen: &engine.Params{MaxTokens: n, IgnoreEOS: true, Logprobs: 3}}
}

// sameText fails the test unless two texts are equal up to a near tie.
func sameText(t *testing.T, what string, want, got *scored) {
	t.Helper()
	for k, w := range want.at {
		if d := math.Abs(float64(w.Top[0].Log - got.at[k].Top[0].Log)); d > drift {
			t.Fatalf("%s: token %d: log probabilities differ by %g", what, k, d)
		}
		if want.tokens[k] != got.tokens[k] {
			if gap := w.Top[0].Log - w.Top[1].Log; gap > drift {
				t.Fatalf("%s: token %d differs, the likeliest led by %g", what, k, gap)
			}
			return
		}
	}
}

func TestASecondTurnOnAStateIsWhatAFreshProcessSays(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		fresh := func(r *engine.Request) *scored {
			h, res := converse(t, run(t, load(t, kind, Config{Context: 2048}), engine.Config{}), r)
			if res.Cached != 0 || res.Finish != engine.FinishLength {
				t.Fatalf("%+v", res)
			}
			return h
		}
		b := load(t, kind, Config{Context: 2048})
		l := run(t, b, engine.Config{})
		first := prompt(b, 600, 1)
		one, res := converse(t, l, saying(first, 30))
		if res.Cached != 0 || res.Finish != engine.FinishLength {
			t.Fatalf("%+v", res)
		}
		turn := slices.Concat(first, one.tokens, prompt(b, 20, 2))
		two, res := converse(t, l, saying(turn, 40))
		if res.Cached != 629 || res.Computed != 21 {
			t.Fatalf("the second turn: %+v", res)
		}
		sameText(t, "the second turn", fresh(saying(turn, 40)), two)

		// The same beginning and another end: there is no state of where they part.
		for _, other := range [][]engine.Token{slices.Concat(first[:590], prompt(b, 50, 3)), first[:500], turn[:len(turn)-1]} {
			got, res := converse(t, l, saying(other, 20))
			if res.Cached != 0 {
				t.Fatalf("a part of a state was used: %+v", res)
			}
			sameText(t, "another end", fresh(saying(other, 20)), got)
		}
	})
}

// stopper cancels its own sequence at a token.
type stopper struct {
	scored
	seq  chan *engine.Seq
	stop int
}

func (s *stopper) Token(x engine.Token, p int32, lp *engine.Logprobs) {
	if s.scored.Token(x, p, lp); len(s.tokens) == s.stop {
		(<-s.seq).Cancel(nil)
	}
}

func TestWhatACancelledRequestLeftOfAStateIsRightToGoOnFrom(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{Context: 2048})
		l := run(t, b, engine.Config{})
		first := prompt(b, 300, 1)
		h := &stopper{scored: scored{relay: relay{done: make(chan engine.Result, 1)}}, seq: make(chan *engine.Seq, 1), stop: 10}
		s, err := l.Admit(saying(first, 500), h)
		if err != nil {
			t.Fatal(err)
		}
		h.seq <- s
		if res := <-h.done; res.Finish != engine.FinishCanceled {
			t.Fatalf("%+v", res)
		}
		turn := slices.Concat(first, h.tokens, prompt(b, 20, 2))
		got, res := converse(t, l, saying(turn, 30))
		want, _ := converse(t, run(t, load(t, kind, Config{Context: 2048}), engine.Config{}), saying(turn, 30))
		t.Logf("%d of %d positions were there", res.Cached, len(turn)-1)
		sameText(t, "after a cancel", want, got)
	})
}

func TestNCompletionsOfAStateShareItsPromptAndDoNotDisturbEachOther(t *testing.T) {
	onStateful(t, func(t *testing.T, kind testmodel.Kind) {
		b := load(t, kind, Config{Slots: 4, Context: 4096})
		l := run(t, b, engine.Config{})
		tokens := prompt(b, 500, 1)
		ask := func(i int, after *engine.Seq) *engine.Request {
			r := saying(tokens, 30)
			r.Gen.Temperature, r.Gen.Seed, r.After = 0.7, uint64(i), after
			return r
		}
		var hs []*scored
		var first *engine.Seq
		for i := range 4 {
			h := &scored{relay: relay{done: make(chan engine.Result, 1)}}
			s, err := l.Admit(ask(i, first), h)
			if err != nil {
				t.Fatal(err)
			}
			if hs = append(hs, h); first == nil {
				first = s
			}
		}
		computed := 0
		for i, h := range hs {
			res := <-h.done
			if res.Finish != engine.FinishLength {
				t.Fatalf("%d: %+v", i, res)
			}
			computed += res.Computed
		}
		if computed > 2*500 { // shared, unless this goroutine was asleep while the first went on
			t.Errorf("%d prompt tokens were computed", computed)
		}
		for i, h := range hs {
			alone, res := converse(t, run(t, load(t, kind, Config{Slots: 4, Context: 4096}), engine.Config{}), ask(i, nil))
			if res.Finish != engine.FinishLength {
				t.Fatalf("%+v", res)
			}
			same := 0
			for same < 30 && alone.tokens[same] == h.tokens[same] {
				same++
			}
			for k := range min(same+1, 30) { // beyond a draw that fell the other way they are two texts
				if d := math.Abs(float64(alone.at[k].Top[0].Log - h.at[k].Top[0].Log)); d > drift {
					t.Fatalf("%d: token %d: log probabilities differ by %g", i, k, d)
				}
			}
			if same < 5 {
				t.Errorf("%d: only %d tokens are those of a process of its own", i, same)
			}
		}
	})
}
