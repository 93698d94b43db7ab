package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

func TestALongPromptDoesNotStopTheOthersTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := start(t, sim.Config{TokenTime: 5 * time.Millisecond, Cells: 20000}, engine.Config{})
		var gaps []time.Duration
		last := time.Now()
		h := newRecorder()
		h.onToken = func(engine.Token, int32) {
			gaps = append(gaps, time.Since(last))
			last = time.Now()
		}
		admit(t, l, &engine.Request{Tokens: prompt(1, 1), Gen: &engine.Params{MaxTokens: 200}}, h)
		time.Sleep(100 * time.Millisecond)
		long := newRecorder()
		admit(t, l, &engine.Request{Tokens: prompt(5000, 2), Export: true}, long)
		h.wait(t)
		for i, g := range gaps {
			if g > 300*time.Millisecond {
				t.Fatalf("token %d came after %v", i, g)
			}
		}
		if len(long.chunks) == 0 {
			t.Fatal("the long prompt did not get on")
		}
	})
}

func TestImportsKeepTheStepsBudgetAndAreFair(t *testing.T) {
	b, _ := sim.New(sim.Config{Chunk: 32})
	var order []int32
	perStep := map[uint64]int{}
	var l *engine.Loop
	sc := sim.Config{Chunk: 32, Hook: func(op sim.Op) error {
		if op.Kind == "import" {
			order = append(order, int32(op.Seq))
			perStep[l.Call().Steps]++
		}
		return nil
	}}
	backend, err := sim.New(sc)
	if err != nil {
		t.Fatal(err)
	}
	l = engine.New(engine.Config{Backend: backend, ImportBudget: 2 * b.ChunkBytes(32)})
	source, _ := start(t, sim.Config{Chunk: 32}, engine.Config{})
	tokens := prompt(193, 1)
	chunks := handOver(t, source, tokens).chunks
	var hs []*recorder
	for range 3 {
		h := newRecorder()
		hs = append(hs, h)
		s := admit(t, l, &engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 1}}, h)
		for _, c := range chunks {
			if err := s.Import(c.p0, c.p1, c.b); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop := run(t, l)
	for _, h := range hs {
		h.wait(t)
	}
	stop()
	for step, n := range perStep {
		if n > 2 {
			t.Errorf("%d imports in step %d", n, step)
		}
	}
	seen := map[int32]bool{}
	for _, s := range order[:3] {
		seen[s] = true
	}
	if len(seen) != 3 {
		t.Errorf("the first three imports were of %v", order[:3])
	}
}

func TestDeterministicPiecesAreWholeChunks(t *testing.T) {
	var rows []int
	l, _ := start(t, sim.Config{Hook: func(op sim.Op) error {
		if op.Kind == "compute" {
			rows = append(rows, op.Rows)
		}
		return nil
	}}, engine.Config{Deterministic: true})
	h := newRecorder()
	admit(t, l, &engine.Request{Tokens: prompt(600, 1), Gen: &engine.Params{MaxTokens: 2}}, h)
	h.wait(t)
	if got := fmt.Sprint(rows); got != "[256 256 87 1 1]" {
		t.Fatalf("calls of %s rows", got)
	}
}

func TestTheModelsEndOfTextEndsTheSequence(t *testing.T) {
	c := sim.Config{MeanLength: 5}
	l, _ := start(t, c, engine.Config{})
	stops := 0
	for salt := range engine.Token(20) {
		h := newRecorder()
		admit(t, l, &engine.Request{Tokens: prompt(5, salt), Gen: &engine.Params{MaxTokens: 12}}, h)
		res := h.wait(t)
		want := sim.Expect(c, prompt(5, salt), 12)
		equal(t, "text", h.tokens, want)
		if (res.Finish == engine.FinishStop) != (len(want) < 12) {
			t.Fatalf("%+v with %d tokens", res, len(want))
		}
		if res.Finish == engine.FinishStop {
			stops++
		}
		on := newRecorder()
		admit(t, l, &engine.Request{Tokens: prompt(5, salt), Gen: &engine.Params{MaxTokens: 12, IgnoreEOS: true}}, on)
		if res := on.wait(t); res.Finish != engine.FinishLength || len(on.tokens) != 12 {
			t.Fatalf("%+v", res)
		}
	}
	if stops == 0 {
		t.Fatal("no text ended")
	}
}
