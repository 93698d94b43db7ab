package engine_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// small is a simulator on which everything is scarce: few cells, few slots,
// short chunks, so that histories meet every limit.
var small = sim.Config{Cells: 600, Slots: 3, Chunk: 32}

// life is one request of a random history.
type life struct {
	tokens   []engine.Token
	kind     string // "serve", "prefill", "decode", or "have": decode beside what the cache has
	max      int
	cancelAt int // cancel at the n-th event the handler hears; −1 never
	refuse   int // Space says nil this many times
}

// lived is a Handler that cancels and resumes from inside its own calls.
type lived struct {
	recorder
	life
	seq    chan *engine.Seq
	s      *engine.Seq
	events int
	stop   error
	taken  int // imports the loop accepted
}

func (h *lived) event() {
	if h.s == nil {
		h.s = <-h.seq
	}
	if h.events == h.cancelAt {
		h.s.Cancel(h.stop)
	}
	h.events++
}

func (h *lived) Space(p0, p1 int32, size int) []byte {
	h.event()
	if h.refuse > 0 {
		h.refuse--
		h.s.Resume()
		return nil
	}
	return h.recorder.Space(p0, p1, size)
}

func (h *lived) Exported(p0, p1 int32, n int, err error) {
	h.recorder.Exported(p0, p1, n, err)
	h.event()
}

func (h *lived) Imported(p0, p1 int32, err error) {
	h.recorder.Imported(p0, p1, err)
	h.event()
}

func (h *lived) Token(t engine.Token, pos int32, _ *engine.Logprobs) {
	h.recorder.Token(t, pos, nil)
	h.event()
}

func TestAnyHistoryEndsEverySequenceOnceAndLeavesNothing(t *testing.T) {
	source, _ := start(t, sim.Config{Cells: 4000, Chunk: small.Chunk}, engine.Config{})
	memory := asideArena(t, 20<<10) // not enough for all
	rapid.Check(t, func(rt *rapid.T) {
		lives := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) life {
			return life{
				tokens:   prompt(rapid.IntRange(1, 150).Draw(t, "n"), engine.Token(rapid.IntRange(0, 9).Draw(t, "salt"))),
				kind:     rapid.SampledFrom([]string{"serve", "prefill", "decode", "have"}).Draw(t, "kind"),
				max:      rapid.IntRange(1, 40).Draw(t, "max"),
				cancelAt: rapid.IntRange(-20, 20).Draw(t, "cancelAt"),
				refuse:   rapid.IntRange(0, 3).Draw(t, "refuse"),
			}
		}), 1, 12).Draw(rt, "lives")
		chunks := make([][]blob, len(lives))
		for i, f := range lives {
			if f.kind == "decode" || f.kind == "have" {
				chunks[i] = handOver(t, source, f.tokens).chunks
			}
		}
		c := small
		c.CacheSeqs = rapid.SampledFrom([]int{-1, 1, 3}).Draw(rt, "cacheSeqs")
		c.Window = rapid.SampledFrom([]int{0, 0, 40, -1}).Draw(rt, "window")
		b, err := sim.New(c)
		if err != nil {
			rt.Fatal(err)
		}
		l := engine.New(engine.Config{
			Backend: b, MinStep: 8, ImportBudget: rapid.SampledFrom([]int{1, 5000, 1 << 20}).Draw(rt, "budget"),
			Deterministic: rapid.Bool().Draw(rt, "deterministic"),
			Overcommit:    rapid.Bool().Draw(rt, "overcommit"), Headroom: 5, Aside: memory,
		})
		stop := run(rt, l)
		var wg sync.WaitGroup
		handlers := make([]*lived, len(lives))
		results := make([]engine.Result, len(lives))
		for i, f := range lives {
			h := &lived{recorder: recorder{done: make(chan engine.Result, 1)}, life: f, seq: make(chan *engine.Seq, 1), stop: errors.New("stop")}
			handlers[i] = h
			r := &engine.Request{Tokens: f.tokens, Gen: &engine.Params{MaxTokens: f.max}}
			switch f.kind {
			case "prefill":
				r.Gen, r.Export = nil, true
			case "decode", "have":
				r.KV = engine.Imported
			}
			if f.kind == "have" {
				r.Have = int32(l.Cached(f.tokens))
			}
			s, err := l.Admit(r, h)
			for errors.Is(err, engine.ErrNoCells) || errors.Is(err, engine.ErrNoSlot) || errors.Is(err, engine.ErrHaveGone) {
				if errors.Is(err, engine.ErrHaveGone) {
					r.Have = 0
				} else {
					<-l.Freed()
				}
				s, err = l.Admit(r, h)
			}
			if err != nil {
				rt.Fatal(err)
			}
			h.seq <- s
			wg.Go(func() {
				for _, c := range chunks[i] {
					if c.p0 < r.Have {
						continue
					}
					switch err := s.Import(c.p0, c.p1, c.b); {
					case err == nil:
						h.taken++
					case !errors.Is(err, engine.ErrEnded):
						panic(err)
					}
				}
				results[i] = <-h.done
			})
		}
		wg.Wait()
		wait(l)
		if cached := l.Cache(); b.Used() != cached.Cells {
			rt.Fatalf("%d cells used, %+v cached", b.Used(), cached)
		}
		stop()
		if held, _ := l.Cells(); held != 0 || b.Used() != 0 || l.Load() != (engine.Load{}) || l.Panics() != 0 {
			rt.Fatalf("%d cells held, %d used, %+v, %d panics", held, b.Used(), l.Load(), l.Panics())
		}
		if n := memory.Stats().Leases; n != 0 {
			rt.Fatalf("%d states left aside", n)
		}
		for i, h := range handlers {
			judge(rt, lives[i], h, results[i])
		}
	})
}

func judge(t *rapid.T, f life, h *lived, res engine.Result) {
	if len(h.wrong) > 0 || h.pending != nil {
		t.Fatalf("%v, pending %v", h.wrong, h.pending != nil)
	}
	if len(h.imported) != h.taken {
		t.Fatalf("%d of %d buffers came back", len(h.imported), h.taken)
	}
	seen := map[[2]int32]bool{}
	for _, c := range h.imported {
		if seen[c] {
			t.Fatalf("chunk %v came back twice", c)
		}
		seen[c] = true
	}
	want := sim.Expect(small, f.tokens, f.max)
	switch res.Finish {
	case engine.FinishCanceled:
		if f.cancelAt < 0 || res.Err != h.stop {
			t.Fatalf("canceled: %+v", res)
		}
		want = want[:len(h.recorder.tokens)]
	case engine.FinishPrefilled:
		if f.kind != "prefill" || res.Computed+res.Cached != len(f.tokens)-1 {
			t.Fatalf("%+v", res)
		}
		want = nil
		end := int32(0)
		for _, c := range h.chunks {
			if c.p0 != end || c.p1-c.p0 > 32 {
				t.Fatalf("chunk [%d, %d) after %d", c.p0, c.p1, end)
			}
			end = c.p1
		}
		if int(end) != len(f.tokens)-1 {
			t.Fatalf("exported up to %d of %d", end, len(f.tokens)-1)
		}
	case engine.FinishLength:
	case engine.FinishFailed: // rare, and only where positions leave the window
		if f.kind != "have" || !errors.Is(res.Err, engine.ErrHaveGone) {
			t.Fatalf("%+v", res)
		}
		want = nil
	default:
		t.Fatalf("%+v", res)
	}
	if !slices.Equal(h.recorder.tokens, want) {
		t.Fatalf("%s: wrong text", f.kind)
	}
}
