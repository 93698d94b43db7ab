package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/kv"
)

// Defaults of Config.
const (
	DefaultStepTarget   = 250 * time.Millisecond  // a cancel waits at most about this long
	DefaultMixedTarget  = 100 * time.Millisecond  // the gap between two tokens while a prompt is computed
	DefaultSoloTarget   = 1500 * time.Millisecond // the first of several waits at most about this long
	DefaultMinStep      = 32                      // prompt tokens per step however slow: below it calls cost more than they compute
	DefaultHeadroom     = 256                     // tokens a text may grow before it needs cells again
	DefaultImportBudget = 64 << 20                // bytes imported per step: some 30 ms at 2 GB/s
)

// DefaultMaxStep returns the rows one call may have at most unless Config says
// otherwise; a backend must take this many.
func DefaultMaxStep(chunk, slots int) int { return max(2*chunk, slots+chunk) }

// Config says how a Loop works.
type Config struct {
	// Backend computes. Required. The caller closes it after Run returned.
	Backend Backend
	// StepTarget is how long one call should take at most. Default 250 ms.
	StepTarget time.Duration
	// MixedTarget is how long a call should take at most that has both prompt
	// tokens and the next token of running streams: it is what a new prompt adds
	// to the gap between their tokens. Default 100 ms, at most StepTarget.
	MixedTarget time.Duration
	// SoloTarget is how long a call should take at most while a single sequence
	// lives. Large pieces are faster, and there is nobody to wait: a cancel
	// interrupts the call, where the backend can. Default 1.5 s, at least StepTarget.
	SoloTarget time.Duration
	// MinStep is the least number of prompt tokens in a step that has any, half
	// of it beside running streams. Default 32.
	MinStep int
	// MaxStep is the most rows in one call. Default max(2×Chunk, Slots+Chunk).
	MaxStep int
	// ImportBudget is how many bytes a step imports; one chunk always goes. Default 64 MiB.
	ImportBudget int
	// Deterministic computes each sequence in calls of its own, prompts in
	// pieces of exactly Chunk tokens, so that a text does not depend on what else
	// is in the batch. (With llama.cpp and f16 KV it still depends on which of
	// the cache's cells the sequence has: worker.Config says how much.)
	Deterministic bool
	// NoPrefixCache computes every prompt whole and drops sequences when they end.
	// Deterministic implies it: KV that was computed in other pieces differs in
	// the last digits. Request.After works all the same.
	NoPrefixCache bool
	// Overcommit reserves prompt + min(MaxTokens, Headroom) cells at admission, and
	// more as a text grows. More sequences run at once; when cells run out, the one
	// with the latest deadline is set aside and goes on later, exactly. Off by
	// default: a stream may then pause for as long as others run, and the promise
	// that an admitted request never waits for memory is gone.
	Overcommit bool
	// Headroom is in tokens. Default 256.
	Headroom int
	// Aside is the memory for states set aside, used by nobody else. Without it, or
	// when it is full, their tokens are computed again: same text, but logits may
	// differ in the last digits.
	Aside *kv.Arena
	// Log hears of refusals by the backend and panics of handlers. Default slog.Default.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Loop is the step loop: the one owner of a Backend.
type Loop struct {
	cfg     Config
	backend Backend
	info    Info
	log     *slog.Logger
	now     func() time.Time

	wake   chan struct{} // cap 1: mail came
	later  *time.Timer   // placeWindowed wants to look again
	waited bool          // later is set in this round of place
	freed  chan struct{} // cap 1: cells or a slot became free

	mu          sync.Mutex
	ledger      ledger
	cache       Cache // counters only
	flush       bool
	asides      int // sequences set aside
	arrivals    []*Seq
	closed      bool
	cause       error // why Run's context ended
	computing   bool  // a Compute runs
	uncancelled int   // sequences of the running batch that nobody cancelled

	// The loop goroutine's own.
	live    []*Seq
	step    uint64 // turns begun, idle ones too
	stepped uint64 // steps that did something
	speed   speed
	choice  choosing
	batch   []*Seq // owners of the batch's spans, parallel to spans
	spans   []piece
	rows    []Row
	asks    []ask
	asking  []*Seq
	plan    []piece
	watched []*track

	load   [phases]atomic.Int64
	call   atomic.Pointer[callState]
	done   atomic.Pointer[doneState]
	panics atomic.Uint64
}

// callState is one library call in progress.
type callState struct {
	since    time.Time
	tokens   int
	expected time.Duration
}

// doneState is the last step's end.
type doneState struct {
	steps uint64
	at    time.Time
}

var _ Engine = (*Loop)(nil)

// New returns a loop over a loaded backend. It does nothing until Run.
func New(c Config) *Loop {
	info := c.Backend.Info()
	if c.StepTarget <= 0 {
		c.StepTarget = DefaultStepTarget
	}
	if c.MixedTarget <= 0 {
		c.MixedTarget = DefaultMixedTarget
	}
	c.MixedTarget = min(c.MixedTarget, c.StepTarget)
	if c.SoloTarget <= 0 {
		c.SoloTarget = DefaultSoloTarget
	}
	c.SoloTarget = max(c.SoloTarget, c.StepTarget)
	if c.MinStep <= 0 {
		c.MinStep = DefaultMinStep
	}
	if c.MaxStep <= 0 {
		c.MaxStep = DefaultMaxStep(info.Chunk, info.Slots)
	}
	// Every slot may decode and a prompt must still get on.
	c.MaxStep = max(c.MaxStep, info.Slots+1)
	if info.Seqs < info.Slots {
		info.Seqs = info.Slots
	}
	if c.Deterministic {
		c.NoPrefixCache = true
		c.MaxStep = max(c.MaxStep, info.Chunk)
	}
	if c.Headroom <= 0 {
		c.Headroom = DefaultHeadroom
	}
	if c.ImportBudget <= 0 {
		c.ImportBudget = DefaultImportBudget
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Loop{
		cfg: c, backend: c.Backend, info: info, log: c.Log, now: c.Now,
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), later: time.NewTimer(time.Hour),
		ledger: newLedger(info.Cells, info.Slots, info.Seqs),
	}
}

// Info returns what the backend is.
func (l *Loop) Info() Info { return l.info }

// Tokenizer returns the model's tokenizer, safe for concurrent use.
func (l *Loop) Tokenizer() Tokenizer { return l.backend.Tokenizer() }

// ChunkBytes returns the exact size of an exported chunk of this many tokens.
func (l *Loop) ChunkBytes(tokens int) int { return l.backend.ChunkBytes(tokens) }

// Admit reserves cells and a slot, or says at once why not.
func (l *Loop) Admit(r *Request, h Handler) (*Seq, error) {
	if err := l.check(r); err != nil {
		return nil, err
	}
	s := &Seq{loop: l, req: r, h: h, slot: noID, next: r.Have, end: int32(len(r.Tokens) - 1), due: r.Due, spared: r.Spared, admitted: l.now()}
	if !l.cfg.NoPrefixCache {
		s.marks = marksOf(r.Tokens, l.info.Chunk)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.asides > 0 { // they come first
		return nil, fmt.Errorf("%w: %d sequences are set aside", ErrNoCells, l.asides)
	}
	if err := l.promise(s); err != nil {
		return nil, err
	}
	first := int32(0)
	// With state that is only its end's, the other can be forked only before it goes
	// on, and this one may come too late: it has cells for a prompt of its own.
	if r.After != nil && l.info.Window >= 0 {
		first = s.end
	}
	var err error
	if s.track, err = l.ledger.admit(s, first, l.reserve(r)); err != nil {
		return nil, err
	}
	if s.from != nil {
		s.from.pins++
	}
	l.arrivals = append(l.arrivals, s)
	l.load[waiting].Add(1)
	l.poke()
	return s, nil
}

// check refuses what can never run; the library must not see such tokens.
func (l *Loop) check(r *Request) error {
	n := len(r.Tokens)
	switch {
	case n == 0:
		return errors.New("a prompt needs at least one token")
	case r.Gen != nil && r.Gen.MaxTokens < 1:
		return fmt.Errorf("max_tokens is %d: ask for at least 1", r.Gen.MaxTokens)
	case n-1 > l.info.Cells:
		e := &TooLongError{Prompt: n, Cells: l.info.Cells}
		if r.Gen != nil {
			e.MaxTokens = r.Gen.MaxTokens
		}
		return e
	case r.Gen != nil && r.Gen.MaxTokens > l.info.Cells-n:
		return &TooLongError{Prompt: n, MaxTokens: r.Gen.MaxTokens, Cells: l.info.Cells}
	case r.Have != 0 && (r.KV != Imported || r.Have < 0 || int(r.Have) > n-1):
		return fmt.Errorf("have is %d: only an imported prompt has it, of at most %d", r.Have, n-1)
	case r.Spared != 0 && !r.Export || r.Spared < SparedUnknown || r.Spared > 0 && (int(r.Spared) >= n || int(r.Spared)%l.info.Chunk != 0):
		return fmt.Errorf("spared is %d: only an exported prompt has it, a multiple of %d below %d", r.Spared, l.info.Chunk, n)
	case r.After != nil && (r.KV != Compute || r.Gen == nil || r.Export || r.PromptLogprobs > 0 || r.After.loop != l || !slices.Equal(r.After.req.Tokens, r.Tokens)):
		return errors.New("a sequence can only come after one of the same prompt and engine, and generates")
	case (r.KV == Imported || r.Export) && l.info.HandOver != "":
		return fmt.Errorf("KV of this model cannot be handed over: %s", l.info.HandOver)
	}
	for i, t := range r.Tokens {
		if t < 0 || int(t) >= l.info.Vocab {
			return fmt.Errorf("token %d at position %d is outside the vocabulary of %d", t, i, l.info.Vocab)
		}
	}
	return l.checkParams(r)
}

// Freed receives, coalesced, after cells or a slot became free.
func (l *Loop) Freed() <-chan struct{} { return l.freed }

// Cells returns the cells that admitted sequences hold, and all there are.
func (l *Loop) Cells() (held, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.held, l.ledger.total
}

// Load counts live sequences by what they do now.
func (l *Loop) Load() Load {
	return Load{
		Waiting:    int(l.load[waiting].Load()),
		Prefilling: int(l.load[prefilling].Load()),
		Paused:     int(l.load[paused].Load()),
		Decoding:   int(l.load[decoding].Load()),
		Aside:      int(l.load[aside].Load()),
	}
}

// Panics returns how many Handler calls panicked.
func (l *Loop) Panics() uint64 { return l.panics.Load() }

// Call returns what the loop's goroutine does, without blocking.
func (l *Loop) Call() Call {
	var c Call
	if d := l.done.Load(); d != nil {
		c.Steps, c.LastStep = d.steps, d.at
	}
	if s := l.call.Load(); s != nil {
		c.Since, c.Tokens, c.Expected = s.since, s.tokens, s.expected
	}
	return c
}

// Run owns the backend until ctx ends, then cancels what lives and returns nil.
func (l *Loop) Run(ctx context.Context) error {
	// A call that is running when ctx ends is asked to stop early.
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed, l.cause = true, context.Cause(ctx)
		l.interruptIfAllCancelled()
	})
	defer stop()
	defer l.later.Stop()
	for ctx.Err() == nil {
		if l.turn() {
			continue
		}
		select {
		case <-l.wake:
		case <-l.later.C:
		case <-ctx.Done():
		}
	}
	l.shutdown(context.Cause(ctx))
	return nil
}

func (l *Loop) shutdown(cause error) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.receive()
	for _, s := range slices.Clone(l.live) {
		l.finish(s, FinishCanceled, cause)
	}
	l.sweep()
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := l.ledger.oldest(nil); t != nil; t = l.ledger.oldest(nil) {
		l.evict(t)
	}
}

// poke wakes an idle loop. It never waits: one token in the channel is enough.
func (l *Loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// interruptIfAllCancelled is called with mu held: so the batch it stops is the
// one it looked at. Interrupt only raises a flag and never waits.
func (l *Loop) interruptIfAllCancelled() {
	if l.computing && (l.closed || l.uncancelled == 0) {
		l.backend.Interrupt()
	}
}

func (l *Loop) enter(tokens int, expected time.Duration) {
	l.call.Store(&callState{since: l.now(), tokens: tokens, expected: expected})
}

func (l *Loop) leave() { l.call.Store(nil) }
