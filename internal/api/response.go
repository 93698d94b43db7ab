package api

import (
	"strconv"

	"github.com/tandem-llm/tandem/internal/id"
)

// Finish is why an answer ended, as both APIs spell it.
type Finish string

const (
	FinishStop   Finish = "stop"       // the model ended its turn
	FinishLength Finish = "length"     // max_tokens were generated
	FinishCalls  Finish = "tool_calls" // the model asks for functions to be called
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
	Role    string         `json:"role"`
	Content *string        `json:"content"`
	Calls   []toolCallBody `json:"tool_calls,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  chatMessage   `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   Finish        `json:"finish_reason"`
}

type chatDelta struct {
	Role    string          `json:"role,omitempty"`
	Content *string         `json:"content,omitempty"`
	Calls   []toolCallDelta `json:"tool_calls,omitempty"`
}

type chunkChoice struct {
	Index    int           `json:"index"`
	Delta    chatDelta     `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *Finish       `json:"finish_reason"`
}

type textChoice struct {
	Index    int           `json:"index"`
	Text     string        `json:"text"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   *Finish       `json:"finish_reason"`
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

// whole returns a complete OpenAI answer.
func (a *Answer) whole(choices []choice, logs bool, usage Usage) []byte {
	list := make([]any, len(choices))
	for i := range choices {
		c := &choices[i]
		if a.Kind == Chat {
			list[i] = chatChoice{i, c.message(), newChatLogprobs(c.logs, logs), c.ending.Finish}
		} else {
			list[i] = textChoice{i, c.text.String(), newTextLogprobs(c.logs, logs), &c.ending.Finish}
		}
	}
	e := a.envelope(false, list...)
	e.Usage = newUsage(usage)
	return encode(e)
}

// roleChunk returns a chat stream's first chunk of a choice, which holds the
// role and no text.
func (a *Answer) roleChunk(index int) []byte {
	empty := ""
	return encode(a.envelope(true, chunkChoice{Index: index, Delta: chatDelta{Role: "assistant", Content: &empty}}))
}

// textChunk returns a chunk with some text.
func (a *Answer) textChunk(p Part, logs bool) []byte {
	if a.Kind == Chat {
		return encode(a.envelope(true, chunkChoice{Index: p.Choice, Delta: chatDelta{Content: &p.Text}, Logprobs: newChatLogprobs(p.Logs, logs)}))
	}
	return encode(a.envelope(true, textChoice{Index: p.Choice, Text: p.Text, Logprobs: newTextLogprobs(p.Logs, logs)}))
}

// finishChunk returns the chunk that says why a choice ended.
func (a *Answer) finishChunk(index int, finish Finish) []byte {
	if a.Kind == Chat {
		return encode(a.envelope(true, chunkChoice{Index: index, Finish: &finish}))
	}
	return encode(a.envelope(true, textChoice{Index: index, Finish: &finish}))
}

// usageChunk returns the chunk that include_usage asks for: usage, no choices.
func (a *Answer) usageChunk(usage Usage) []byte {
	e := a.envelope(true)
	e.Usage = newUsage(usage)
	return encode(e)
}

// generateBody is SGLang's answer to /generate, whole or so far.
type generateBody struct {
	Index *int    `json:"index,omitempty"` // where there are several
	Text  string  `json:"text"`
	IDs   []int32 `json:"output_ids"`
	Meta  meta    `json:"meta_info"`
}

type meta struct {
	ID         string        `json:"id"`
	Finish     *finishReason `json:"finish_reason"`
	Prompt     int           `json:"prompt_tokens"`
	Completion int           `json:"completion_tokens"`
	Cached     int           `json:"cached_tokens"`
	*generateLogprobs
}

type finishReason struct {
	Type    Finish `json:"type"`
	Matched any    `json:"matched,omitempty"` // of type "stop": a stop string, or a token's id
	Length  int    `json:"length,omitempty"`  // of type "length"
}

// generate returns one choice of a /generate answer, with the text so far.
func (a *Answer) generate(i int, c *choice, several, logs, logText bool) generateBody {
	ids := c.ids
	if ids == nil {
		ids = []int32{}
	}
	b := generateBody{Text: c.text.String(), IDs: ids, Meta: meta{
		ID: string(a.RID), Prompt: c.usage.Prompt, Completion: c.usage.Completion, Cached: c.usage.Cached}}
	if several {
		b.Index = &i
		b.Meta.ID += "-" + strconv.Itoa(i)
	}
	if logs {
		b.Meta.generateLogprobs = newGenerateLogprobs(c, logText)
	}
	if c.ending.Finish != "" {
		b.Meta.Finish = &finishReason{Type: c.ending.Finish, Matched: c.ending.Matched}
		if c.ending.Finish == FinishLength {
			b.Meta.Finish.Length = c.usage.Completion
		}
	}
	return b
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
