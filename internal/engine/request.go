package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/sample"
)

// Params says how to choose tokens. The zero value is greedy. In this order:
// Bias, penalties, MinTokens, Grammar, Temperature, TopK, TopP, MinP; then one
// number, which Seed and the position give, decides.
type Params struct {
	Temperature float32 // 0: greedy
	TopP        float32 // nucleus mass in (0, 1]; 0 means 1
	TopK        int     // candidates kept; 0 means all
	MinP        float32 // least probability kept, as a share of the likeliest's; 0 means all
	Seed        uint64  // the random stream's seed; with the position it is the sampler's whole state

	Repetition float32       // over prompt and generated tokens; 0 and 1: none
	Presence   float32       // over generated tokens; 0: none
	Frequency  float32       // over generated tokens; 0: none
	Bias       []sample.Bias // added to logits first
	Grammar    string        // GBNF that the text must follow; "": none

	MaxTokens  int     // tokens to generate, ≥ 1; reserved as cells at admission
	MinTokens  int     // before so many nothing that ends the sequence can be chosen
	IgnoreEOS  bool    // generate MaxTokens whatever the model says
	StopTokens []Token // these end the sequence too, also with IgnoreEOS
	Logprobs   int     // 0: none; n: of each token, and of the n−1 likeliest

	// Before is how many of the request's last tokens were generated before, by
	// whoever had the sequence: they count for penalties, MinTokens and Grammar,
	// not for MaxTokens.
	Before int
}

// KVSource says where the KV of the first n−1 tokens comes from.
type KVSource uint8

const (
	// Compute: this engine evaluates the prompt itself.
	Compute KVSource = iota
	// Imported: Seq.Import brings it, chunk after chunk, in order.
	Imported
)

// Request is one sequence's whole life on an engine. The loop reads it and
// never writes it; the caller must not change it after Admit.
type Request struct {
	RID    id.RID
	Room   id.Room
	Tokens []Token   // the prompt, n ≥ 1 tokens
	KV     KVSource  // where positions [0, n−1) come from
	Export bool      // hand each computed chunk to Handler.Space and Handler.Exported
	Gen    *Params   // nil: end after position n−2 (a prefill worker's request)
	Due    time.Time // the request's deadline; earlier is computed first

	// PromptLogprobs asks for those of the prompt's own tokens, handed to a
	// PromptHandler: 0: none; n: of each, and of the n−1 likeliest. The prompt is
	// then computed here, at MaxScoredRows tokens a step.
	PromptLogprobs int
	PromptFrom     int32 // position of the first token they are wanted of

	// Have, with Imported: positions [0, Have) come from the engine's own cache
	// (Loop.Cached says how many it has) and imports begin at Have. Admit pins
	// them, or says ErrHaveGone.
	Have int32

	// Spared, with Export: positions [0, Spared), a multiple of C, need not be
	// exported, because whoever takes the KV has them. SparedUnknown until
	// Seq.Spare says it.
	Spared int32

	// After is a sequence of the same prompt, of the same engine, whose prompt KV
	// this one shares: it waits until that is complete, reserves only its own
	// cells (all of them if Info.Window is negative), and until then fails when the
	// other ends. KV must be Compute. Not nil for the second to n-th of n completions.
	After *Seq
}

// SparedUnknown is Request.Spared before the other side has said what it has.
const SparedUnknown = -1

// Cells returns the KV cells the request reserves at admission: prompt plus
// MaxTokens when it generates, n−1 when it does not.
func (r *Request) Cells() int {
	if r.Gen == nil {
		return len(r.Tokens) - 1
	}
	return len(r.Tokens) + r.Gen.MaxTokens
}

// Handler hears what happens to one sequence. The step loop calls it, one call
// at a time, from the engine goroutine: every method must return at once and
// must not wait for anything.
type Handler interface {
	// Space returns arena memory of at least size bytes for the export of
	// [p0, p1), which the loop uses until the Exported that follows, or nil if
	// there is none now: the sequence then pauses until Seq.Resume.
	Space(p0, p1 int32, size int) []byte

	// Exported says that dst, from Space, now holds the chunk [p0, p1) in its
	// first n bytes. err is not nil when the library refused; Done follows. A chunk
	// that was spared comes with n = 0, and Space was not asked for it.
	Exported(p0, p1 int32, n int, err error)

	// Imported says that the loop is finished with the buffer given to
	// Seq.Import. With err nil the chunk is part of the sequence. It is called
	// exactly once for every accepted Import, also after a cancel.
	Imported(p0, p1 int32, err error)

	// Token hands over one generated token. pos is its position in the
	// sequence; lp is nil unless Params.Logprobs asked. A token that ends the
	// sequence is not handed over.
	Token(t Token, pos int32, lp *Logprobs)

	// Done is the last call, exactly once, when all the sequence's cells are
	// free and no buffer of it is in use.
	Done(Result)
}

// Finish says why a sequence ended.
type Finish uint8

const (
	FinishPrefilled Finish = iota // KV complete and exported; Gen was nil
	FinishStop                    // the model ended its generation
	FinishLength                  // MaxTokens generated
	FinishCanceled                // Seq.Cancel; Err holds its cause
	FinishFailed                  // the backend refused; Err says what
)

// String names the finish in one lower-case word.
func (f Finish) String() string {
	switch f {
	case FinishPrefilled:
		return "prefilled"
	case FinishStop:
		return "stop"
	case FinishLength:
		return "length"
	case FinishCanceled:
		return "canceled"
	case FinishFailed:
		return "failed"
	}
	return fmt.Sprintf("Finish(%d)", uint8(f))
}

// Result is how a sequence ended and what it cost.
type Result struct {
	Finish    Finish
	Err       error
	Stop      Token         // with FinishStop the token that ended it; −1 if nothing could follow
	Computed  int           // prompt tokens evaluated here
	Imported  int           // prompt tokens whose KV was imported
	Cached    int           // prompt tokens whose KV another sequence had
	Generated int           // tokens handed to Handler.Token
	Waited    time.Duration // from Admit to the first work on the sequence
	Prefill   time.Duration // from the first work to KV complete
}

// Errors of Admit. ErrNoCells and ErrNoSlot pass: wait for Loop.Freed and try
// again. A *TooLongError never passes.
var (
	ErrNoCells = errors.New("not enough free KV cells")
	ErrNoSlot  = errors.New("no free sequence slot")
	ErrClosed  = errors.New("the engine is closed")
)

// ParamError says that a request asks for what cannot be.
type ParamError struct{ What string }

// Error returns what.
func (e *ParamError) Error() string { return e.What }

// TooLongError says that a request can never fit the context.
type TooLongError struct {
	Prompt, MaxTokens, Cells int // tokens asked for, and cells there are
}

// Error names the numbers and what to do.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("prompt of %d tokens + max_tokens %d exceeds the context of %d tokens: shorten the prompt or lower max_tokens",
		e.Prompt, e.MaxTokens, e.Cells)
}

// ErrBusyImport is Seq.Import's answer when more chunks are queued than the
// sequence's window allows (MaxQueuedImports): the sender broke its credit.
var ErrBusyImport = errors.New("more chunks queued for import than the window allows")

// MaxQueuedImports bounds the chunks one sequence may have queued for import.
const MaxQueuedImports = 64

// Call says what the engine goroutine is doing. Health reads this and nothing else.
type Call struct {
	Since    time.Time     // when the library call in progress began; zero when none runs
	Tokens   int           // rows in that call
	Expected time.Duration // what it should take, from measured speed
	Steps    uint64        // steps finished since start: progress
	LastStep time.Time     // when the last step ended
}

// Engine is what the workers see of the step loop. *Loop is the only
// implementation; tests may wrap it.
type Engine interface {
	Info() Info
	Tokenizer() Tokenizer
	ChunkBytes(tokens int) int

	// Admit reserves r.Cells() cells and one slot and hands the sequence to the
	// loop, or refuses at once. It never waits.
	Admit(r *Request, h Handler) (*Seq, error)

	// Freed receives, coalesced, after cells or a slot became free.
	Freed() <-chan struct{}

	// Cells returns the KV cells that admitted sequences hold, and all there are.
	Cells() (held, total int)

	// Load counts live sequences by what they do now.
	Load() Load

	// Cached returns what Request.Have may be; Cache what is kept of sequences
	// that ended; FlushCache drops it.
	Cached(tokens []Token) int
	Cache() Cache
	FlushCache()

	// Call returns the engine goroutine's state without blocking.
	Call() Call

	// Run owns the backend until ctx ends; then it cancels what lives, calls
	// every Done, and returns. It is called once.
	Run(ctx context.Context) error
}

// Load counts live sequences.
type Load struct {
	Waiting    int // admitted, nothing done yet, or waiting for a prompt that another computes
	Prefilling int // computing or importing their prompt
	Paused     int // waiting for export space
	Decoding   int // generating
	Aside      int // set aside while others need the cells
}
