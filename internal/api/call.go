package api

import (
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
)

// Kind is the API a body was written for.
type Kind uint8

const (
	Chat       Kind = iota // POST /v1/chat/completions
	Completion             // POST /v1/completions
	Generate               // POST /generate, SGLang's own
)

// Path returns the kind's route.
func (k Kind) Path() string {
	switch k {
	case Chat:
		return "/v1/chat/completions"
	case Completion:
		return "/v1/completions"
	}
	return "/generate"
}

// Kinds lists every kind, for registering routes.
func Kinds() []Kind { return []Kind{Chat, Completion, Generate} }

// Message is one turn of a chat. Role is "system", "user", "assistant" or "tool".
type Message struct {
	Role    string
	Content string
	Calls   []ToolCall // an assistant's
	CallID  string     // a tool's: the call that it answers
	Name    string     // a tool's: the function that was called
}

// Call is one request in the form the workers use, whatever API it came by.
type Call struct {
	Kind     Kind
	Model    string    // as the body says; "" if it does not
	Messages []Message // Chat
	Text     string    // Completion, Generate: the prompt as text ...
	IDs      []int32   // ... or as token ids, each ≥ 0; exactly one of both is set
	Batch    []Prompt  // Completion, Generate: several prompts, and neither Text nor IDs; nil: one

	Tools      []Tool     // Chat: functions that the model is told of
	ToolChoice ToolChoice // whether it must call one of them
	OneTool    string     // ToolRequired: only this one; "": any
	Parallel   bool       // several calls in one answer

	Params           engine.Params
	Schema           []byte // the JSON schema that Params.Grammar was made of; nil: none
	MaxTokensDefault bool   // Params.MaxTokens is the default: cap it to the context instead of refusing
	SeedDefault      bool   // Params.Seed was drawn here: the body named none

	N        int      // choices for each prompt, 1 to MaxChoices; each has the seed of its number added
	Stop     []string // texts that end a choice
	KeepStop bool     // and stay part of its text
	NoText   bool     // max_tokens 0: only the prompt is asked about; one token is generated and dropped
	FullText bool     // control tokens are part of the text (skip_special_tokens false)

	Logprobs       bool  // of the answer's tokens; how many likeliest, Params.Logprobs says
	LogprobText    bool  // Generate: with the tokens' text
	PromptLogprobs int   // as in engine.Request
	PromptFrom     int32 // its first position; negative: none of them
	Echo           bool  // Completion: the prompt is part of the text

	// Local says that one worker computes all of it: several prompts, or log
	// probabilities of the prompt's tokens, which a hand-over does not carry.
	Local bool

	Stream       bool
	IncludeUsage bool // stream_options.include_usage

	RID id.RID // the body's rid, "" if it has none
	Leg *Leg   // nil: the body is not one leg of a pair
}

// Prompt is one of a batch; one of both is set.
type Prompt struct {
	Text string
	IDs  []int32
}

// Prompts lists a Completion's or Generate's prompts.
func (c *Call) Prompts() []Prompt {
	if c.Batch != nil {
		return c.Batch
	}
	return []Prompt{{c.Text, c.IDs}}
}

// Choices returns how many answers there are: choice i belongs to prompt i / N.
func (c *Call) Choices() int { return len(c.Prompts()) * c.N }

// Leg is what the router adds to a body. A body has a leg if it has a
// bootstrap_room.
type Leg struct {
	RID           id.RID        // "rid"; "" from routers that send none
	Room          id.Room       // "bootstrap_room", ≥ 1
	BootstrapHost string        // "bootstrap_host": where decode finds prefill
	BootstrapPort int           // "bootstrap_port"; 0 if absent or null
	RequestTime   int64         // "tandem_request_time", unix s, for the template's clock; 0 if absent
	Remaining     time.Duration // "tandem_remaining_ms": what is left of the deadline; 0 if absent
}
