package api

import (
	"time"

	"github.com/tandem-llm/tandem/internal/grammar"
)

// Limits of one request. They bound memory and time before anything is known
// about the client.
const (
	// DefaultMaxBody is 64 MiB: a 4M-token prompt of ids, or a book as text.
	DefaultMaxBody = 64 << 20
	// DefaultBodyTimeout is how long a whole body may take to arrive: 64 MiB at
	// about 1 MB/s.
	DefaultBodyTimeout = 60 * time.Second
	// MaxHeaderBytes bounds a request's header; net/http adds 4 KiB of slop.
	MaxHeaderBytes = 64 << 10
	// ReadHeaderTimeout is how long a header may take to arrive.
	ReadHeaderTimeout = 10 * time.Second
	// IdleTimeout is how long a connection may wait for its next request. It is
	// longer than the router's own idle time, so that the router closes first
	// and the keep-alive race stays rare.
	IdleTimeout = 120 * time.Second
	// WriteTimeout is how long one write may take: a reader that takes nothing
	// for this long is gone, however alive its connection looks.
	WriteTimeout = 10 * time.Second
	// SocketBuffer caps the kernel's send buffer of one connection: a client that
	// never reads fills it, and without a cap that is up to 4 MB each.
	SocketBuffer = 256 << 10
	// Heartbeat is the longest silence on a stream: a comment is written, so
	// that a client that left without a word is noticed.
	Heartbeat = 5 * time.Second

	// DefaultMaxTokens is generated when a body does not say how much. A worker
	// caps it to what its context leaves.
	DefaultMaxTokens = 512
	// MaxMaxTokens is the largest max_tokens a body may ask for, far above every
	// context there is; it keeps sums away from overflow.
	MaxMaxTokens = 1 << 24
	// MaxMessages bounds a chat, because each one costs the template time.
	MaxMessages = 16384
	// MaxChoices, MaxPrompts and MaxBatch bound n, the prompts of one body and
	// what both make together.
	MaxChoices = 16
	MaxPrompts = 256
	MaxBatch   = 512
	// MaxAnswer bounds what a body may ask for, in bytes of an answer that is not a
	// stream: the router keeps such an answer whole, as it may have to try again. A
	// stream of /generate repeats all of a choice in every event: there it is
	// MaxEvent for one choice.
	MaxAnswer = 64 << 20
	// AnswerToken is what a generated token is taken to need of an answer, in bytes:
	// 4 to 8 of text with its escapes, 7 of its id. AnswerLog is the same of a log
	// probability, "[-12.345678,128000,\"text\"],", and AnswerLogChat of chat's form,
	// which has names and spells every byte as a number. A model whose tokens are
	// longer may still end at the router, as answer_too_large.
	AnswerToken   = 16
	AnswerLog     = 48
	AnswerLogChat = 128
	// MaxStops is OpenAI's bound of stop; MaxStopsGenerate is /generate's.
	// MaxStopBytes bounds one: that much text is held back.
	MaxStops         = 4
	MaxStopsGenerate = 64
	MaxStopBytes     = 1024
	// MaxTopLogprobs is OpenAI's bound of top_logprobs.
	MaxTopLogprobs = 20
	// MaxBias bounds logit_bias and stop_token_ids, which cost every token.
	MaxBias = 1024
	// MaxTools is OpenAI's bound of tools, MaxToolName of a function's name.
	// MaxToolSchema bounds one function's parameters, as a schema of response_format;
	// MaxToolsBytes all of tools, which the template writes into the prompt.
	// MaxToolDepth bounds a schema's nesting, because templates walk it.
	MaxTools      = 128
	MaxToolName   = 64
	MaxToolSchema = grammar.MaxSchema
	MaxToolsBytes = 1 << 20
	MaxToolDepth  = 128
	// MaxToolCalls bounds the calls of one message; MaxCallID a call's id, in bytes.
	MaxToolCalls = 128
	MaxCallID    = 256
	// MaxAborts is the most requests one POST /abort_request may name.
	MaxAborts = 1024
	// MaxRID is the longest rid, in bytes.
	MaxRID = 128
	// MaxRemaining is the longest time a leg may ask for.
	MaxRemaining = 24 * time.Hour
)

// Limits are what a server lets a body ask for. The zero value means the
// defaults above.
type Limits struct {
	DefaultMaxTokens int // tokens when the body does not say; DefaultMaxTokens
	MaxMaxTokens     int // largest max_tokens; MaxMaxTokens
}

func (l Limits) withDefaults() Limits {
	if l.DefaultMaxTokens <= 0 {
		l.DefaultMaxTokens = DefaultMaxTokens
	}
	if l.MaxMaxTokens <= 0 {
		l.MaxMaxTokens = MaxMaxTokens
	}
	return l
}
