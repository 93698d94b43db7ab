package decode

import (
	"sync"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/room"
)

// Generation is one choice of a request: a stream of tokens between the engine,
// which must never wait, and a handler, which may be slow. It holds at most
// max_tokens tokens: what admission reserved cells for. The choices of a request
// share one ending, unless each of them ends well.
type Generation struct {
	all   *choices
	wake  chan struct{} // cap 1
	abort func(*room.Cause)

	mu     sync.Mutex
	tokens []Out // produced, not yet taken
	prompt []Out // log probabilities of the prompt's tokens, if asked for
	open   bool  // tokens may be seen: the KV they come from is committed
	ended  bool
	result engine.Result
	cause  *room.Cause
}

// Out is one token with its log probabilities, nil unless the request asked.
type Out struct {
	Token    engine.Token
	Logprobs *engine.Logprobs
}

// choices are the generations of one request and its one ending.
type choices struct {
	record *flight.Record

	mu   sync.Mutex
	list []*Generation
	left int // not ended
}

// newChoices returns n generations, which share one wake channel; nil makes one.
// open: their tokens may be seen at once.
func newChoices(record *flight.Record, n int, open bool, wake chan struct{}) *choices {
	if wake == nil {
		wake = make(chan struct{}, 1)
	}
	c := &choices{record: record, left: n}
	for range n {
		c.list = append(c.list, &Generation{all: c, wake: wake, open: open})
	}
	return c
}

// Choices returns all generations of the request, in the order of their index.
// They share one Wake.
func (g *Generation) Choices() []*Generation { return g.all.list }

// Wake receives, coalesced, when Take has something new to say.
func (g *Generation) Wake() <-chan struct{} { return g.wake }

// Take returns the tokens produced since the last call, and whether the request
// has ended; then Ending says how. No token is handed out before the hand-over
// it rests on is complete.
func (g *Generation) Take() (tokens []Out, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		tokens, g.tokens = g.tokens, nil
	}
	return tokens, g.ended
}

// Prompt returns the log probabilities of the prompt's tokens, all of them once
// Take returned a token.
func (g *Generation) Prompt() []Out {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.prompt
}

// Ending returns the request's one ending, after Take said that it has ended:
// code Done if the model finished.
func (g *Generation) Ending() (*room.Cause, engine.Result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause, g.result
}

func (g *Generation) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *Generation) promptToken(o Out) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.prompt = append(g.prompt, o)
}

func (g *Generation) token(o Out) {
	g.mu.Lock()
	over := g.ended
	if !over {
		g.tokens = append(g.tokens, o)
	}
	g.mu.Unlock()
	if !over {
		g.all.record.Token()
		g.signal()
	}
}

// commit opens the stream: the KV is verified and the hand-over complete.
func (g *Generation) commit() {
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
	g.signal()
}

// end ends this choice if it ended well, and every choice otherwise. The first
// ending counts; with the last choice the request is finalized.
func (g *Generation) end(cause *room.Cause, res engine.Result) {
	c := g.all
	c.mu.Lock()
	defer c.mu.Unlock()
	if cause.Code == room.Done {
		if g.over() {
			return
		}
		if c.left--; c.left == 0 {
			c.record.Finalize(cause)
		}
		g.close(cause, res)
		return
	}
	if !c.record.Finalize(cause) {
		return
	}
	c.left = 0
	for _, x := range c.list {
		if !x.over() {
			x.close(cause, res)
		}
	}
}

// produced says whether there has been a token.
func (g *Generation) produced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.tokens) > 0
}

func (g *Generation) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

func (g *Generation) close(cause *room.Cause, res engine.Result) {
	g.mu.Lock()
	g.ended, g.cause, g.result = true, cause, res
	g.mu.Unlock()
	g.signal()
}

// Cause returns the ending's cause, nil while the choice lives.
func (g *Generation) Cause() *room.Cause {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// Abort ends the request; Take says when it has. With code Done it is no abort,
// and ends this choice alone: its text is complete, as a stop string makes it.
func (g *Generation) Abort(cause *room.Cause) { g.abort(cause) }

// Abandon ends the request for its client without waiting for the engine, which
// is stuck. Its memory is freed when the engine returns.
func (g *Generation) Abandon(cause *room.Cause) {
	g.end(cause, engine.Result{Finish: engine.FinishCanceled, Err: cause})
}
