package llama

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// relay is a Handler that hands each exported chunk to a function.
type relay struct {
	arena  *kv.Arena
	lease  *kv.Lease
	chunk  func(p0, p1 int32, l *kv.Lease)
	queued map[int32]*kv.Lease
	mu     sync.Mutex
	tokens []engine.Token
	done   chan engine.Result
}

func (r *relay) Space(_, _ int32, size int) []byte {
	r.lease, _ = r.arena.Alloc(size, "test")
	return r.lease.Bytes()
}
func (r *relay) Exported(p0, p1 int32, _ int, err error) {
	if err == nil {
		r.chunk(p0, p1, r.lease)
	} else {
		r.lease.Release()
	}
}
func (r *relay) Imported(p0, _ int32, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued[p0].Release()
}
func (r *relay) Token(t engine.Token, _ int32, _ *engine.Logprobs) { r.tokens = append(r.tokens, t) }
func (r *relay) Done(res engine.Result)                            { r.done <- res }

func run(t testing.TB, b *Backend, c engine.Config) *engine.Loop {
	c.Backend, c.Log = b, slog.New(slog.DiscardHandler)
	l := engine.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return l
}

func TestATextHandedOverBetweenLoopsIsTheServedOne(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			c := engine.Config{Deterministic: true}
			pb, db := load(t, kind, Config{}), load(t, kind, Config{})
			p, d := run(t, pb, c), run(t, db, c)
			a := newArena(t, 8<<20)
			for _, n := range []int{1, 2, 257, 700} {
				tokens := prompt(pb, n, n)
				gen := &engine.Params{MaxTokens: 24, Temperature: 0.7, Seed: 9, IgnoreEOS: true}

				served := &relay{done: make(chan engine.Result, 1)}
				if _, err := d.Admit(&engine.Request{Tokens: tokens, Gen: gen}, served); err != nil {
					t.Fatal(err)
				}
				if res := <-served.done; res.Finish != engine.FinishLength {
					t.Fatalf("%+v", res)
				}

				to := &relay{done: make(chan engine.Result, 1), queued: map[int32]*kv.Lease{}}
				s, err := d.Admit(&engine.Request{Tokens: tokens, KV: engine.Imported, Gen: gen}, to)
				if err != nil {
					t.Fatal(err)
				}
				from := &relay{arena: a, done: make(chan engine.Result, 1), chunk: func(p0, p1 int32, l *kv.Lease) {
					to.mu.Lock()
					to.queued[p0] = l
					to.mu.Unlock()
					if err := s.Import(p0, p1, l.Bytes()); err != nil {
						t.Error(err)
					}
				}}
				if _, err := p.Admit(&engine.Request{Tokens: tokens, Export: true}, from); err != nil {
					t.Fatal(err)
				}
				if res := <-from.done; res.Finish != engine.FinishPrefilled {
					t.Fatalf("%+v", res)
				}
				if res := <-to.done; res.Finish != engine.FinishLength || res.Imported != n-1 {
					t.Fatalf("%+v", res)
				}
				for i := range served.tokens {
					if served.tokens[i] != to.tokens[i] {
						t.Fatalf("n=%d: token %d differs", n, i)
					}
				}
			}
		})
	}
}

func TestACallNobodyWantsIsInterrupted(t *testing.T) {
	b := load(t, testmodel.Gemma3, Config{Context: 2048})
	tokens := prompt(b, 600, 1)
	var rows []engine.Row
	for i, x := range tokens[:500] {
		rows = append(rows, engine.Row{Seq: 0, Token: x, Pos: int32(i)})
	}
	begin := time.Now()
	if err := b.Compute(rows); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(begin)
	b.Drop(0)
	// The flag is raised again and again until the call is over, because a raise
	// before Compute begins is forgotten by design.
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
	begin = time.Now()
	err := b.Compute(rows)
	took := time.Since(begin)
	close(over)
	wg.Wait()
	if !errors.Is(err, ErrInterrupted) {
		t.Fatalf("%v after %v (whole: %v)", err, took, whole)
	}
	b.Drop(0)
	// The backend is sound afterwards.
	prefill(t, b, 0, tokens)
	_, want := generate(t, load(t, testmodel.Gemma3, Config{}).prefilled(t, tokens), 0, tokens, 1)
	_, got := generate(t, b, 0, tokens, 1)
	if d := difference(want[0], got[0]); !(d <= tolerance) {
		t.Fatalf("logits differ by %v after an interrupt", d)
	}
}

func (b *Backend) prefilled(t *testing.T, tokens []engine.Token) *Backend {
	prefill(t, b, id.SeqID(0), tokens)
	return b
}

// Every slot of both sides is busy with contexts longer than the window, pieces
// of many prompts share calls, and some requests are cancelled: no call may find
// the window's small cache full, no chunk may have lost a cell before its export.
func TestFullSlotsHandOverBesideEachOther(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			c := Config{Slots: 4, Context: 4096}
			pb, db := load(t, kind, c), load(t, kind, c)
			p, d := run(t, pb, engine.Config{}), run(t, db, engine.Config{})
			a := newArena(t, 32<<20)
			var wg sync.WaitGroup
			slots := make(chan struct{}, 4)
			for i := range 10 {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					tokens := prompt(pb, 700+i*20, i)
					to := &relay{done: make(chan engine.Result, 1), queued: map[int32]*kv.Lease{}}
					s, err := d.Admit(&engine.Request{Tokens: tokens, KV: engine.Imported, Gen: &engine.Params{MaxTokens: 30, IgnoreEOS: true}}, to)
					if err != nil {
						t.Error(err)
						return
					}
					from := &relay{arena: a, done: make(chan engine.Result, 1), chunk: func(p0, p1 int32, l *kv.Lease) {
						to.mu.Lock()
						to.queued[p0] = l
						to.mu.Unlock()
						if err := s.Import(p0, p1, l.Bytes()); err != nil {
							l.Release()
						}
						if i%4 == 3 && p0 > 0 {
							s.Cancel(errors.New("client gone"))
						}
					}}
					if _, err := p.Admit(&engine.Request{Tokens: tokens, Export: true}, from); err != nil {
						t.Error(err)
						return
					}
					want := engine.FinishLength
					if i%4 == 3 {
						want = engine.FinishCanceled
					}
					if res := <-from.done; res.Finish != engine.FinishPrefilled {
						t.Errorf("prefill %d: %+v", i, res)
					}
					if res := <-to.done; res.Finish != want {
						t.Errorf("decode %d: %+v", i, res)
					}
				})
			}
			wg.Wait()
		})
	}
}
