package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/kv"
)

func asideArena(t *testing.T, bytes int) *kv.Arena {
	t.Helper()
	a, err := kv.NewArena(kv.ArenaConfig{Bytes: bytes, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestWhatIsSetAsideGoesOnExactlyAndNothingFails(t *testing.T) {
	for name, memory := range map[string]bool{"saved": true, "computed again": false} {
		t.Run(name, func(t *testing.T) {
			saves := 0
			c := engine.Config{Overcommit: true, Headroom: 20}
			if memory {
				c.Aside = asideArena(t, 1<<20)
			}
			l, _ := start(t, sim.Config{Cells: 600, Hook: func(op sim.Op) error {
				if op.Kind == "save" {
					saves++
				}
				return nil
			}}, c)
			now := time.Now()
			var hs []*recorder
			for i := range engine.Token(5) { // 5 × 120 reserved, 5 × 400 wanted
				h := newRecorder()
				hs = append(hs, h)
				admit(t, l, &engine.Request{Tokens: prompt(100, i), Gen: &engine.Params{MaxTokens: 300}, Due: now.Add(time.Duration(i) * time.Hour)}, h)
			}
			for i, h := range hs {
				if res := h.wait(t); res.Finish != engine.FinishLength || res.Generated != 300 {
					t.Fatalf("%d: %+v", i, res)
				}
				equal(t, "text", h.tokens, sim.Expect(sim.Config{}, prompt(100, engine.Token(i)), 300))
			}
			if (saves > 0) != memory {
				t.Fatalf("%d saved", saves)
			}
		})
	}
}

func TestTheLatestDeadlineIsSetAsideAndCanBeCancelledThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asideArena(t, 1<<20)
		l, _ := start(t, sim.Config{Cells: 300, CallTime: 10 * time.Millisecond}, engine.Config{Overcommit: true, Headroom: 20, Aside: a})
		now := time.Now()
		early, late := newRecorder(), newRecorder()
		second := admit(t, l, &engine.Request{Tokens: prompt(100, 2), Gen: &engine.Params{MaxTokens: 150}, Due: now.Add(2 * time.Hour)}, late)
		admit(t, l, &engine.Request{Tokens: prompt(100, 1), Gen: &engine.Params{MaxTokens: 150}, Due: now.Add(time.Hour)}, early)
		time.Sleep(time.Second)
		synctest.Wait()
		if load := l.Load(); load != (engine.Load{Decoding: 1, Aside: 1}) || a.Stats().Leases != 1 {
			t.Fatalf("%+v, %d leases", load, a.Stats().Leases)
		}
		if _, err := l.Admit(&engine.Request{Tokens: prompt(5, 3), Gen: &engine.Params{MaxTokens: 1}}, newRecorder()); !errors.Is(err, engine.ErrNoCells) {
			t.Fatalf("overtaken: %v", err)
		}
		second.Cancel(nil)
		if res := late.wait(t); res.Finish != engine.FinishCanceled {
			t.Fatalf("%+v", res)
		}
		if a.Stats().Leases != 0 {
			t.Fatal("its memory is not free")
		}
		if res := early.wait(t); res.Finish != engine.FinishLength {
			t.Fatalf("%+v", res)
		}
	})
}
