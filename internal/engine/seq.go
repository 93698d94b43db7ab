package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// ErrEnded is the answer of a Seq that is done or cancelled.
var ErrEnded = errors.New("the sequence has ended")

// ErrCanceled is the cause of a Cancel(nil).
var ErrCanceled = errors.New("canceled")

// phase is what a sequence does now, as Load counts it.
type phase uint8

const (
	waiting phase = iota
	prefilling
	paused
	decoding
	aside
	ended
	phases
)

// Seq is one admitted request. Its methods never wait and may be called from
// any goroutine, from inside Handler calls too.
type Seq struct {
	loop     *Loop
	req      *Request
	h        Handler
	slot     id.SeqID
	track    *track
	from     *track   // pinned: it starts from this one
	marks    []uint64 // of the prompt
	end      int32    // n−1
	admitted time.Time

	// Mail, guarded by loop.mu.
	imports []chunk // queued, in order
	next    int32   // where the next Import must begin
	resume  bool
	spared  int32 // Request.Spared, or what Spare said
	cancel  error
	over    bool // end was called: no more mail
	inBatch bool

	// The loop goroutine's own.
	phase    phase
	due      time.Time // the request's, or that of one that waits for it
	made     []Token   // generated tokens that are in the cache
	saved    *kv.Lease // its state while it is set aside
	redo     bool      // it computes again, up to end, what it had when it was set aside
	broken   bool      // a library call failed: its KV is not to be trusted
	pos      int32     // positions [0, pos) are in the cache
	exported int32     // positions [0, exported) were handed to Exported
	owes     bool      // a chunk waits for space
	token    Token     // last token sampled, not evaluated yet; from pos ≥ n on
	chooser  *chooser
	served   uint64
	fed      uint64 // step in which it last imported
	begun    time.Time
	ready    time.Time
	res      Result
}

// chunk is one queued import.
type chunk struct {
	p0, p1 int32
	src    []byte
}

// Import queues the KV of [p0, p1), which must follow what was imported or
// queued before. Returns nil: the loop uses src, memory of an Arena, until
// Handler.Imported; returns error: the caller keeps src and the sequence is as
// it was.
func (s *Seq) Import(p0, p1 int32, src []byte) error {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	switch {
	case s.req.KV != Imported:
		return errors.New("this sequence computes its prompt itself")
	case s.over || s.cancel != nil:
		return ErrEnded
	case p0 != s.next || p1 <= p0 || p1 > s.end:
		return fmt.Errorf("import of positions [%d, %d): have [0, %d) of %d", p0, p1, s.next, s.end)
	case len(s.imports) >= MaxQueuedImports:
		return ErrBusyImport
	}
	s.imports = append(s.imports, chunk{p0, p1, src})
	s.next = p1
	s.loop.poke()
	return nil
}

// Resume says that Handler.Space may have memory now.
func (s *Seq) Resume() {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if !s.over {
		s.resume = true
		s.loop.poke()
	}
}

// Spare says that whoever takes the KV has positions [0, p) already. Chunks that were
// exported before are not taken back.
func (s *Seq) Spare(p int32) {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if !s.over {
		s.spared = p
		s.loop.poke()
	}
}

// spares returns how many positions need not be exported, SparedUnknown before that
// is known.
func (s *Seq) spares() int32 {
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	return s.spared
}

// Cancel ends the sequence at the next step's border; Done then carries cause.
// The first cause counts. When every row of the running batch is cancelled the
// backend is asked to stop early.
func (s *Seq) Cancel(cause error) {
	if cause == nil {
		cause = ErrCanceled
	}
	s.loop.mu.Lock()
	defer s.loop.mu.Unlock()
	if s.over || s.cancel != nil {
		return
	}
	s.cancel = cause
	if s.inBatch {
		s.loop.uncancelled--
		s.loop.interruptIfAllCancelled()
	}
	s.loop.poke()
}

// Request returns what was admitted.
func (s *Seq) Request() *Request { return s.req }

// computes says whether the next call should have prompt tokens of s.
func (s *Seq) computes() bool {
	return s.placed() && (s.req.KV == Compute || s.redo) && !s.owes && s.pos < s.end
}

// placed says whether s has a sequence id and so can do anything at all.
func (s *Seq) placed() bool { return s.track.id != noID }

// tokenAt returns the token at a position that is in the cache or next.
func (s *Seq) tokenAt(p int32) Token {
	n := int(p) - len(s.req.Tokens)
	switch {
	case n < 0:
		return s.req.Tokens[p]
	case n < len(s.made):
		return s.made[n]
	}
	return s.token
}

// chunkDue returns the chunk to export next, and whether it is in the cache.
func (s *Seq) chunkDue(c int32) (p0, p1 int32, ok bool) {
	p1 = min((s.exported/c+1)*c, s.end)
	return s.exported, p1, s.req.Export && s.exported < s.end && s.pos >= p1
}

// decodes says whether the next call should have one row of s: the last prompt
// token, or the token sampled last.
func (s *Seq) decodes() bool { return s.placed() && s.req.Gen != nil && !s.owes && s.pos >= s.end }
