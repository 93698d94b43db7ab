package decode

import (
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/room"
)

// Generation is one request's stream of tokens, between the engine, which must
// never wait, and a handler, which may be slow. It holds at most max_tokens
// tokens: what admission reserved cells for.
type Generation struct {
	record *flight.Record
	wake   chan struct{} // cap 1
	abort  func(*room.Cause)

	mu      sync.Mutex
	tokens  []Out // produced, not yet taken
	prompt  []Out // log probabilities of the prompt's tokens, if asked for
	open    bool  // tokens may be seen: the KV they come from is committed
	ended   bool
	result  engine.Result
	cause   *room.Cause
	firstAt time.Time
}

// Out is one token with its log probabilities, nil unless the request asked.
type Out struct {
	Token    engine.Token
	Logprobs *engine.Logprobs
}

func newGeneration(record *flight.Record, open bool) *Generation {
	return &Generation{record: record, wake: make(chan struct{}, 1), open: open}
}

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
		g.record.Token()
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

// end finalizes the request. The first ending counts.
func (g *Generation) end(cause *room.Cause, res engine.Result) {
	if !g.record.Finalize(cause) {
		return
	}
	g.mu.Lock()
	g.ended, g.cause, g.result = true, cause, res
	g.mu.Unlock()
	g.signal()
}

// Cause returns the ending's cause, nil while the request lives.
func (g *Generation) Cause() *room.Cause { return g.record.Cause() }

// Abort ends the request; Take says when it has. With code Done it is no abort:
// its text is complete, as a stop string makes it.
func (g *Generation) Abort(cause *room.Cause) { g.abort(cause) }

// Abandon ends the request for its client without waiting for the engine, which
// is stuck. Its memory is freed when the engine returns.
func (g *Generation) Abandon(cause *room.Cause) {
	g.end(cause, engine.Result{Finish: engine.FinishCanceled, Err: cause})
}
