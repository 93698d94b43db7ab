package api

import (
	"github.com/tandem-llm/tandem/internal/id"
)

// Finish is why an answer ended, as both APIs spell it.
type Finish string

const (
	FinishStop   Finish = "stop"   // the model ended its turn
	FinishLength Finish = "length" // max_tokens were generated
)

// Usage counts an answer's tokens.
type Usage struct {
	Prompt     int
	Completion int
	Cached     int // of the prompt, whose KV was there already
}

// Answer is what every part of one answer repeats.
type Answer struct {
	Kind    Kind
	RID     id.RID
	Model   string
	Created int64 // unix s
}

type usageBody struct {
	Prompt     int          `json:"prompt_tokens"`
	Completion int          `json:"completion_tokens"`
	Total      int          `json:"total_tokens"`
	Details    usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	Cached int `json:"cached_tokens"`
}

func newUsage(u Usage) *usageBody {
	return &usageBody{u.Prompt, u.Completion, u.Prompt + u.Completion, usageDetails{u.Cached}}
}

type envelope struct {
	ID      string     `json:"id"`
	Object  string     `json:"object"`
	Created int64      `json:"created"`
	Model   string     `json:"model"`
	Choices []any      `json:"choices"`
	Usage   *usageBody `json:"usage,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatChoice struct {
	Index    int         `json:"index"`
	Message  chatMessage `json:"message"`
	Logprobs *struct{}   `json:"logprobs"`
	Finish   Finish      `json:"finish_reason"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chunkChoice struct {
	Index    int       `json:"index"`
	Delta    chatDelta `json:"delta"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *Finish   `json:"finish_reason"`
}

type textChoice struct {
	Index    int       `json:"index"`
	Text     string    `json:"text"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *Finish   `json:"finish_reason"`
}

func (a *Answer) envelope(chunk bool, choices ...any) envelope {
	e := envelope{Created: a.Created, Model: a.Model, Choices: choices}
	if a.Kind == Chat {
		e.ID, e.Object = "chatcmpl-"+string(a.RID), "chat.completion"
		if chunk {
			e.Object += ".chunk"
		}
	} else {
		e.ID, e.Object = "cmpl-"+string(a.RID), "text_completion"
	}
	if choices == nil {
		e.Choices = []any{}
	}
	return e
}

// Whole returns a complete OpenAI answer; Generate's is generateBody.
func (a *Answer) Whole(text string, finish Finish, usage Usage) []byte {
	var e envelope
	if a.Kind == Chat {
		e = a.envelope(false, chatChoice{Message: chatMessage{"assistant", text}, Finish: finish})
	} else {
		e = a.envelope(false, textChoice{Text: text, Finish: &finish})
	}
	e.Usage = newUsage(usage)
	return encode(e)
}

// RoleChunk returns a chat stream's first chunk, which holds the role and no text.
func (a *Answer) RoleChunk() []byte {
	empty := ""
	return encode(a.envelope(true, chunkChoice{Delta: chatDelta{Role: "assistant", Content: &empty}}))
}

// TextChunk returns a chunk with some text.
func (a *Answer) TextChunk(text string) []byte {
	if a.Kind == Chat {
		return encode(a.envelope(true, chunkChoice{Delta: chatDelta{Content: &text}}))
	}
	return encode(a.envelope(true, textChoice{Text: text}))
}

// FinishChunk returns the chunk that says why the answer ended.
func (a *Answer) FinishChunk(finish Finish) []byte {
	if a.Kind == Chat {
		return encode(a.envelope(true, chunkChoice{Finish: &finish}))
	}
	return encode(a.envelope(true, textChoice{Finish: &finish}))
}

// UsageChunk returns the chunk that include_usage asks for: usage, no choices.
func (a *Answer) UsageChunk(usage Usage) []byte {
	e := a.envelope(true)
	e.Usage = newUsage(usage)
	return encode(e)
}

// generateBody is SGLang's answer to /generate, whole or so far.
type generateBody struct {
	Text string  `json:"text"`
	IDs  []int32 `json:"output_ids"`
	Meta meta    `json:"meta_info"`
}

type meta struct {
	ID         string        `json:"id"`
	Finish     *finishReason `json:"finish_reason"`
	Prompt     int           `json:"prompt_tokens"`
	Completion int           `json:"completion_tokens"`
	Cached     int           `json:"cached_tokens"`
}

type finishReason struct {
	Type   Finish `json:"type"`
	Length int    `json:"length,omitempty"` // of type "length"
}

// GenerateBody returns a /generate answer with the text so far; finish is ""
// until the end.
func (a *Answer) GenerateBody(text string, ids []int32, finish Finish, usage Usage) []byte {
	if ids == nil {
		ids = []int32{}
	}
	b := generateBody{Text: text, IDs: ids, Meta: meta{
		ID: string(a.RID), Prompt: usage.Prompt, Completion: usage.Completion, Cached: usage.Cached}}
	if finish != "" {
		b.Meta.Finish = &finishReason{Type: finish}
		if finish == FinishLength {
			b.Meta.Finish.Length = usage.Completion
		}
	}
	return encode(b)
}

// LegDone is a prefill worker's answer to its leg, once its room is terminal
// and went well; otherwise it answers with WriteError.
type LegDone struct {
	RID      id.RID  `json:"rid"`
	Room     id.Room `json:"room"`
	Outcome  string  `json:"outcome"` // "ok"
	Prompt   int     `json:"prompt_tokens"`
	Cached   int     `json:"cached_tokens"`
	Computed int     `json:"computed_tokens"`
}

// JSON returns the answer's body.
func (d LegDone) JSON() []byte { return encode(d) }
