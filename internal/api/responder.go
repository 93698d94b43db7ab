package api

import (
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tandem-llm/tandem/internal/room"
)

// Responder answers one Call in the form it asked for: a stream, or one JSON
// document at the end. It holds the rules of both: nothing is written before
// the first text, so that statuses are real; an error is a status before the
// first byte and an in-band event without [DONE] after it; only Finish ends an
// answer normally. One goroutine, the handler's, uses it.
type Responder struct {
	Answer
	w       http.ResponseWriter
	stream  *SSE // nil: one document
	call    *Call
	choices []choice
	usage   Usage
	ended   bool
}

// choice is what is known of one of the answers. Its text is kept for documents
// and for /generate, whose stream repeats it.
type choice struct {
	text   strings.Builder
	calls  []calling
	ids    []int32
	logs   []Log
	input  []Log
	usage  Usage
	ending Ending
}

// Part is what one choice gains.
type Part struct {
	Choice int
	Text   string
	Calls  []CallPart // of tools; behind the text
	IDs    []int32    // generated now, whether their text shows already or not
	Logs   []Log      // of the tokens whose text begins to show
}

// Ending is why one choice ended.
type Ending struct {
	Finish  Finish
	Matched any // the stop string, or the id of the token, that ended it; nil: neither
}

// NewResponder prepares an answer to call on w; nothing is written yet. timeout
// is that of one write, 0 means WriteTimeout.
func NewResponder(w http.ResponseWriter, call *Call, a Answer, timeout time.Duration) *Responder {
	a.Kind = call.Kind
	r := &Responder{Answer: a, w: w, call: call, choices: make([]choice, call.Choices())}
	if call.Stream {
		r.stream = NewSSE(w, timeout)
	}
	w.Header().Set("X-Tandem-Rid", string(a.RID))
	return r
}

// Prompt says what a choice's prompt was: its tokens, and for /generate their
// log probabilities.
func (r *Responder) Prompt(index int, usage Usage, input []Log) {
	c := &r.choices[index]
	c.usage.Prompt, c.usage.Cached, c.input = usage.Prompt, usage.Cached, input
}

// Cached says how many of a choice's prompt tokens had their KV already.
func (r *Responder) Cached(index, n int) { r.choices[index].usage.Cached = n }

// Begin says that the first token exists, though it may have no text yet: a
// stream's status line and headers go out. usage counts the prompts.
func (r *Responder) Begin(usage Usage) error {
	r.usage = usage
	if c := &r.choices[0]; len(r.choices) == 1 && c.usage.Prompt == 0 {
		c.usage.Prompt, c.usage.Cached = usage.Prompt, usage.Cached
	}
	if r.stream == nil || r.stream.Started() {
		return nil
	}
	if r.Kind != Chat {
		return r.stream.Start()
	}
	for i := range r.choices {
		if err := r.stream.Event(r.roleChunk(i)); err != nil {
			return err
		}
	}
	return nil
}

// Text adds to the first choice, for answers that have one.
func (r *Responder) Text(text string, ids ...int32) error {
	return r.Add(Part{Text: text, IDs: ids})
}

// Add adds to a choice. An error means that the client is gone or reads nothing:
// abort the request.
func (r *Responder) Add(p Part) error {
	c := &r.choices[p.Choice]
	c.usage.Completion += len(p.IDs)
	if r.stream == nil || r.Kind == Generate {
		c.ids = append(c.ids, p.IDs...)
		c.text.WriteString(p.Text)
		c.logs = append(c.logs, p.Logs...)
		for _, x := range p.Calls {
			c.call(x)
		}
	}
	if r.stream == nil || p.Text == "" && len(p.Logs) == 0 && len(p.Calls) == 0 {
		return nil
	}
	if err := r.Begin(r.usage); err != nil {
		return err
	}
	if r.Kind == Generate {
		return r.stream.Event(encode(r.generate(p.Choice, c, r.several(), r.call.Logprobs, r.call.LogprobText)))
	}
	if r.Kind != Chat {
		return r.stream.Event(r.textChunk(p, r.call.Logprobs))
	}
	for _, chunk := range r.chunks(p, r.call.Logprobs) {
		if err := r.stream.Event(chunk); err != nil {
			return err
		}
	}
	return nil
}

// several says whether an answer to /generate is a list.
func (r *Responder) several() bool { return r.call.Batch != nil || r.call.N > 1 }

// End says why a choice ended; the others go on.
func (r *Responder) End(index int, e Ending) error {
	c := &r.choices[index]
	c.ending = e
	if r.stream == nil {
		return nil
	}
	if err := r.Begin(r.usage); err != nil {
		return err
	}
	if r.Kind == Generate {
		return r.stream.Event(encode(r.generate(index, c, r.several(), r.call.Logprobs, r.call.LogprobText)))
	}
	return r.stream.Event(r.finishChunk(index, e.Finish))
}

// Heartbeat writes a comment on a stream that has begun, and nothing otherwise.
func (r *Responder) Heartbeat() error {
	if r.stream == nil || !r.stream.Started() || r.ended {
		return nil
	}
	return r.stream.Heartbeat()
}

// Finish ends an answer of one choice.
func (r *Responder) Finish(finish Finish, usage Usage) error {
	if r.ended {
		return nil
	}
	if r.choices[0].usage.Prompt == 0 {
		r.Prompt(0, usage, nil)
	}
	r.usage = usage
	_ = r.End(0, Ending{Finish: finish}) // Close repeats the first error of the stream
	return r.Close(usage)
}

// Close ends the answer, all of whose choices have ended. usage counts the
// prompts; the completions are the ids that were added.
func (r *Responder) Close(usage Usage) error {
	if r.ended {
		return nil
	}
	r.ended = true
	usage.Completion = 0
	for i := range r.choices {
		usage.Completion += r.choices[i].usage.Completion
	}
	if r.stream == nil {
		if r.Kind == Generate {
			return WriteJSON(r.w, http.StatusOK, r.generated())
		}
		return WriteJSON(r.w, http.StatusOK, r.whole(r.choices, r.call.Logprobs, usage))
	}
	if r.call.IncludeUsage {
		_ = r.stream.Event(r.usageChunk(usage)) // Done repeats the first error
	}
	return r.stream.Done()
}

// generated returns /generate's document: one object, or a list of them.
func (r *Responder) generated() []byte {
	list := make([]generateBody, len(r.choices))
	for i := range list {
		list[i] = r.generate(i, &r.choices[i], r.several(), r.call.Logprobs, r.call.LogprobText)
	}
	if !r.several() {
		return encode(list[0])
	}
	return encode(list)
}

// Fail ends the answer with an error, in the form that still fits.
func (r *Responder) Fail(cause *room.Cause) {
	if r.ended {
		return
	}
	r.ended = true
	if r.stream != nil && r.stream.Started() {
		r.stream.Error(cause)
		return
	}
	WriteError(r.w, cause)
}

// Characters counts text as its offsets do.
func Characters(text string) int { return utf8.RuneCountInString(text) }
