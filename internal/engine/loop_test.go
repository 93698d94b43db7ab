package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/kv"
)

// handOver prefills on one loop and returns the chunks.
func handOver(t *testing.T, l *engine.Loop, tokens []engine.Token) *recorder {
	t.Helper()
	h := newRecorder()
	admit(t, l, &engine.Request{Tokens: tokens, Export: true}, h)
	if res := h.wait(t); res.Finish != engine.FinishPrefilled || res.Computed+res.Cached != len(tokens)-1 {
		t.Fatalf("prefill: %+v", res)
	}
	return h
}

func TestATextIsTheSameServedOrHandedOver(t *testing.T) {
	for _, det := range []bool{false, true} {
		for _, n := range []int{1, 2, 255, 256, 257, 258, 775} {
			t.Run(fmt.Sprintf("deterministic=%v n=%d", det, n), func(t *testing.T) {
				c := engine.Config{Deterministic: det}
				tokens := prompt(n, 1)
				want := sim.Expect(sim.Config{}, tokens, 20)

				serve, _ := start(t, sim.Config{}, c)
				h := newRecorder()
				admit(t, serve, &engine.Request{Tokens: tokens, Gen: &engine.Params{MaxTokens: 20}}, h)
				if res := h.wait(t); res.Finish != engine.FinishLength || res.Computed != n || res.Generated != 20 {
					t.Fatalf("serve: %+v", res)
				}
				equal(t, "serve", h.tokens, want)

				p, _ := start(t, sim.Config{}, c)
				from := handOver(t, p, tokens)
				if got, want := len(from.chunks), (n-1+255)/256; got != want {
					t.Fatalf("%d chunks, want %d", got, want)
				}
				d, _ := start(t, sim.Config{}, c)
				to := newRecorder()
				s := admit(t, d, &engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 20}}, to)
				for _, b := range from.chunks {
					if err := s.Import(b.p0, b.p1, b.b); err != nil {
						t.Fatal(err)
					}
				}
				if res := to.wait(t); res.Finish != engine.FinishLength || res.Imported != n-1 || res.Computed != 1 {
					t.Fatalf("decode: %+v", res)
				}
				equal(t, "decode", to.tokens, want)
				if len(to.imported) != len(from.chunks) {
					t.Fatalf("%d Imported for %d Imports", len(to.imported), len(from.chunks))
				}
			})
		}
	}
}

func TestKVOfAnotherRequestShowsInTheText(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	tokens := prompt(300, 1)
	other := handOver(t, l, prompt(300, 2))
	h := newRecorder()
	s := admit(t, l, &engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 3}}, h)
	for _, b := range other.chunks {
		if err := s.Import(b.p0, b.p1, b.b); err != nil {
			t.Fatal(err)
		}
	}
	h.wait(t)
	if want := sim.Expect(sim.Config{}, tokens, 3); h.tokens[0] == want[0] {
		t.Fatal("the text does not show it")
	}
}

func TestAFlippedBitShowsInTheTextAndAChangedHeaderIsRefused(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	tokens := prompt(20, 1)
	good := handOver(t, l, tokens).chunks[0]
	for i := range good.b {
		bad := bytes.Clone(good.b)
		bad[i] ^= 4
		h := newRecorder()
		s := admit(t, l, &engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 2}}, h)
		if err := s.Import(good.p0, good.p1, bad); err != nil {
			t.Fatal(err)
		}
		switch res := h.wait(t); res.Finish {
		case engine.FinishFailed:
			if !errors.Is(res.Err, kv.ErrHeader) || len(h.errs) != 1 {
				t.Fatalf("byte %d: %v", i, res.Err)
			}
		case engine.FinishLength:
			if h.tokens[0] != sim.Corrupt {
				t.Fatalf("byte %d: token %d from damaged KV", i, h.tokens[0])
			}
		default:
			t.Fatalf("byte %d: %+v", i, res)
		}
	}
}

func TestASequenceWithoutSpacePausesUntilResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := start(t, sim.Config{TokenTime: time.Millisecond}, engine.Config{})
		var open atomic.Bool
		h := newRecorder()
		h.space = func(_, _ int32, size int) []byte {
			if open.Load() {
				return make([]byte, size)
			}
			return nil
		}
		s := admit(t, l, &engine.Request{Tokens: prompt(600, 1), Export: true}, h)
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if load := l.Load(); load != (engine.Load{Paused: 1}) {
			t.Fatalf("%+v", load)
		}
		steps := l.Call().Steps
		s.Resume() // in vain
		synctest.Wait()
		if got := l.Call().Steps; got != steps+1 || l.Load().Paused != 1 {
			t.Fatalf("%d steps after a vain Resume, had %d", got, steps)
		}
		open.Store(true)
		s.Resume()
		if res := h.wait(t); res.Finish != engine.FinishPrefilled || len(h.chunks) != 3 {
			t.Fatalf("%+v", res)
		}
	})
}

func TestACancelTakesEffectAtTheNextBorderAndFreesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := start(t, sim.Config{CallTime: 100 * time.Millisecond}, engine.Config{})
		stays, goes := newRecorder(), newRecorder()
		admit(t, l, &engine.Request{Tokens: prompt(1, 1), Gen: &engine.Params{MaxTokens: 50}}, stays)
		s := admit(t, l, &engine.Request{Tokens: prompt(1, 2), Gen: &engine.Params{MaxTokens: 50}}, goes)
		time.Sleep(1050 * time.Millisecond)
		cause := errors.New("client gone")
		s.Cancel(cause)
		s.Cancel(errors.New("too late"))
		begin := time.Now()
		res := goes.wait(t)
		if took := time.Since(begin); took > 60*time.Millisecond {
			t.Errorf("took %v, the border was 50ms away", took)
		}
		if res.Finish != engine.FinishCanceled || res.Err != cause {
			t.Errorf("%+v", res)
		}
		if held, _ := l.Cells(); held != 51 {
			t.Errorf("%d cells held, want the other's 51", held)
		}
		<-l.Freed()
		if res := stays.wait(t); res.Finish != engine.FinishLength {
			t.Errorf("the other: %+v", res)
		}
	})
}

func TestABatchThatNobodyWantsIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := start(t, sim.Config{CallTime: time.Hour, Interruptible: true}, engine.Config{})
		a, b := newRecorder(), newRecorder()
		sa := admit(t, l, &engine.Request{Tokens: prompt(1, 1), Gen: &engine.Params{MaxTokens: 5}}, a)
		sb := admit(t, l, &engine.Request{Tokens: prompt(1, 2), Gen: &engine.Params{MaxTokens: 5}}, b)
		time.Sleep(time.Second)
		begin := time.Now()
		sa.Cancel(nil)
		time.Sleep(time.Second)
		sb.Cancel(nil)
		for _, h := range []*recorder{a, b} {
			if res := h.wait(t); res.Finish != engine.FinishCanceled || !errors.Is(res.Err, engine.ErrCanceled) {
				t.Errorf("%+v", res)
			}
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestShutdownInterruptsAndCancelsWhatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := sim.New(sim.Config{CallTime: time.Hour, Interruptible: true})
		l := engine.New(engine.Config{Backend: b})
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		running, queued := newRecorder(), newRecorder()
		admit(t, l, &engine.Request{Tokens: prompt(1, 1), Gen: &engine.Params{MaxTokens: 5}}, running)
		synctest.Wait()
		s := admit(t, l, &engine.Request{Tokens: prompt(100, 1), KV: engine.Imported, Gen: &engine.Params{MaxTokens: 5}}, queued)
		if err := s.Import(0, 50, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		cause := errors.New("shutting down")
		cancel(cause)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for _, h := range []*recorder{running, queued} {
			if res := h.wait(t); res.Finish != engine.FinishCanceled || res.Err != cause {
				t.Errorf("%+v", res)
			}
		}
		if len(queued.imported) != 1 {
			t.Error("the queued buffer did not come back")
		}
		if _, err := l.Admit(&engine.Request{Tokens: prompt(1, 1)}, newRecorder()); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%v", err)
		}
		if err := s.Import(50, 60, nil); !errors.Is(err, engine.ErrEnded) {
			t.Errorf("%v", err)
		}
	})
}

func TestAPanicInAHandlerEndsItsOwnSequenceOnly(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	good, bad := newRecorder(), newRecorder()
	bad.onToken = func(engine.Token, int32) { panic("boom") }
	admit(t, l, &engine.Request{Tokens: prompt(9, 1), Gen: &engine.Params{MaxTokens: 50}}, good)
	admit(t, l, &engine.Request{Tokens: prompt(9, 2), Gen: &engine.Params{MaxTokens: 50}}, bad)
	if res := bad.wait(t); res.Finish != engine.FinishFailed || res.Err == nil {
		t.Fatalf("%+v", res)
	}
	if res := good.wait(t); res.Finish != engine.FinishLength {
		t.Fatalf("%+v", res)
	}
	if l.Panics() != 1 {
		t.Fatalf("%d panics", l.Panics())
	}
}

func TestAFailedComputeEndsTheBatchAndTheLoopGoesOn(t *testing.T) {
	broken := errors.New("library says no")
	var fail atomic.Bool
	l, _ := start(t, sim.Config{Hook: func(op sim.Op) error {
		if op.Kind == "compute" && fail.Swap(false) {
			return broken
		}
		return nil
	}}, engine.Config{})
	fail.Store(true)
	h := newRecorder()
	admit(t, l, &engine.Request{Tokens: prompt(9, 1), Gen: &engine.Params{MaxTokens: 5}}, h)
	if res := h.wait(t); res.Finish != engine.FinishFailed || !errors.Is(res.Err, broken) {
		t.Fatalf("%+v", res)
	}
	h = newRecorder()
	admit(t, l, &engine.Request{Tokens: prompt(9, 1), Gen: &engine.Params{MaxTokens: 5}}, h)
	if res := h.wait(t); res.Finish != engine.FinishLength {
		t.Fatalf("%+v", res)
	}
}

func TestAdmissionSaysWhyNot(t *testing.T) {
	b, _ := sim.New(sim.Config{Cells: 100, Slots: 2})
	l := engine.New(engine.Config{Backend: b})
	gen := func(n, m int) *engine.Request {
		return &engine.Request{Tokens: prompt(n, 1), Gen: &engine.Params{MaxTokens: m}}
	}
	var long *engine.TooLongError
	for _, r := range []*engine.Request{gen(50, 51), gen(50, 1<<62), gen(200, 1), {Tokens: prompt(102, 1)}} {
		if _, err := l.Admit(r, newRecorder()); !errors.As(err, &long) {
			t.Errorf("%v", err)
		}
	}
	for _, r := range []*engine.Request{{}, gen(5, 0), {Tokens: []engine.Token{-1}}, {Tokens: []engine.Token{1 << 30}}} {
		if _, err := l.Admit(r, newRecorder()); err == nil {
			t.Error("admitted nonsense")
		}
	}
	admit(t, l, gen(50, 10), newRecorder())
	if _, err := l.Admit(gen(40, 1), newRecorder()); !errors.Is(err, engine.ErrNoCells) {
		t.Errorf("%v", err)
	}
	admit(t, l, gen(5, 5), newRecorder())
	if _, err := l.Admit(gen(5, 5), newRecorder()); !errors.Is(err, engine.ErrNoSlot) {
		t.Errorf("%v", err)
	}
}

func TestImportsOutOfOrderAreRefusedToTheCaller(t *testing.T) {
	b, _ := sim.New(sim.Config{})
	l := engine.New(engine.Config{Backend: b})
	s := admit(t, l, &engine.Request{Tokens: prompt(1000, 1), KV: engine.Imported, Gen: &engine.Params{MaxTokens: 1}}, newRecorder())
	for _, c := range [][2]int32{{1, 5}, {0, 0}, {0, 1000}, {-1, 3}, {5, 2}} {
		if err := s.Import(c[0], c[1], nil); err == nil {
			t.Errorf("%v accepted", c)
		}
	}
	for i := range int32(engine.MaxQueuedImports) {
		if err := s.Import(i, i+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Import(engine.MaxQueuedImports, engine.MaxQueuedImports+1, nil); !errors.Is(err, engine.ErrBusyImport) {
		t.Errorf("%v", err)
	}
	own := admit(t, l, &engine.Request{Tokens: prompt(10, 1)}, newRecorder())
	if err := own.Import(0, 9, nil); err == nil {
		t.Error("imported into a sequence that computes")
	}
}

func TestACallNeverTakesMuchLongerThanItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		longest := time.Duration(0)
		l, _ := start(t, sim.Config{CallTime: 10 * time.Millisecond, TokenTime: 2 * time.Millisecond, Sleep: func(d time.Duration) {
			longest = max(longest, d)
			time.Sleep(d)
		}}, engine.Config{})
		var hs []*recorder
		for i := range 6 {
			h := newRecorder()
			hs = append(hs, h)
			admit(t, l, &engine.Request{Tokens: prompt(700+i*50, engine.Token(i)), Gen: &engine.Params{MaxTokens: 30}}, h)
		}
		for i, h := range hs {
			h.wait(t)
			equal(t, fmt.Sprint(i), h.tokens, sim.Expect(sim.Config{}, prompt(700+i*50, engine.Token(i)), 30))
		}
		if longest > 260*time.Millisecond || longest < 150*time.Millisecond {
			t.Errorf("longest call %v", longest)
		}
	})
}

func TestHealthSeesACallThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := start(t, sim.Config{TokenTime: time.Millisecond}, engine.Config{})
		thaw := b.Freeze()
		h := newRecorder()
		admit(t, l, &engine.Request{Tokens: prompt(2, 1), Gen: &engine.Params{MaxTokens: 2}}, h)
		synctest.Wait()
		begin := time.Now()
		time.Sleep(time.Minute)
		c := l.Call()
		if !c.Since.Equal(begin) || c.Tokens != 1 || c.Expected <= 0 || c.Steps != 0 {
			t.Errorf("%+v", c)
		}
		thaw()
		h.wait(t)
		synctest.Wait()
		if c := l.Call(); !c.Since.IsZero() || c.Steps == 0 || c.LastStep.IsZero() {
			t.Errorf("%+v", c)
		}
	})
}

func TestNothingIsHandedOutAfterACancel(t *testing.T) {
	var seq atomic.Pointer[engine.Seq]
	calls := 0
	l, _ := start(t, sim.Config{Hook: func(op sim.Op) error {
		if op.Kind == "compute" {
			if calls++; calls == 3 {
				seq.Load().Cancel(nil) // while the third call computes
			}
		}
		return nil
	}}, engine.Config{})
	h := newRecorder()
	h.onToken = func(engine.Token, int32) {}
	hold := make(chan struct{})
	h.space = func(_, _ int32, size int) []byte { <-hold; return make([]byte, size) }
	s := admit(t, l, &engine.Request{Tokens: prompt(2, 1), Export: true, Gen: &engine.Params{MaxTokens: 9}}, h)
	seq.Store(s)
	close(hold)
	if res := h.wait(t); res.Finish != engine.FinishCanceled || res.Generated != 1 || len(h.tokens) != 1 {
		t.Fatalf("%+v, %d tokens", res, len(h.tokens))
	}
	b, _ := sim.New(sim.Config{})
	idle := engine.New(engine.Config{Backend: b})
	s = admit(t, idle, &engine.Request{Tokens: prompt(9, 1), KV: engine.Imported, Gen: &engine.Params{MaxTokens: 1}}, newRecorder())
	s.Cancel(nil)
	if err := s.Import(0, 8, nil); !errors.Is(err, engine.ErrEnded) {
		t.Fatalf("import after a cancel: %v", err)
	}
}
