package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// Responder answers one Call in the form it asked for: a stream, or one JSON
// document at the end. It holds the rules of both: nothing is written before
// the first text, so that statuses are real; an error is a status before the
// first byte and an in-band event without [DONE] after it; only Finish ends an
// answer normally. One goroutine, the handler's, uses it.
type Responder struct {
	Answer
	w            http.ResponseWriter
	stream       *SSE // nil: one document
	includeUsage bool
	text         strings.Builder // what Generate and documents need: all of it
	ids          []int32
	usage        Usage
	ended        bool
}

// NewResponder prepares an answer to call on w; nothing is written yet. timeout
// is that of one write, 0 means WriteTimeout.
func NewResponder(w http.ResponseWriter, call *Call, a Answer, timeout time.Duration) *Responder {
	a.Kind = call.Kind
	r := &Responder{Answer: a, w: w, includeUsage: call.IncludeUsage}
	if call.Stream {
		r.stream = NewSSE(w, timeout)
	}
	w.Header().Set("X-Tandem-Rid", string(a.RID))
	return r
}

// Begin says that the first token exists, though it may have no text yet: a
// stream's status line and headers go out. usage counts the prompt.
func (r *Responder) Begin(usage Usage) error {
	r.usage = usage
	if r.stream == nil || r.stream.Started() {
		return nil
	}
	if r.Kind == Chat {
		return r.stream.Event(r.RoleChunk())
	}
	return r.stream.Start()
}

// Text adds text and the ids of the tokens it came from; both may be empty. An
// error means that the client is gone or reads nothing: abort the request.
func (r *Responder) Text(text string, ids ...int32) error {
	r.ids = append(r.ids, ids...)
	r.usage.Completion += len(ids)
	if r.stream == nil || r.Kind == Generate {
		r.text.WriteString(text)
	}
	if r.stream == nil || text == "" {
		return nil
	}
	if err := r.Begin(r.usage); err != nil {
		return err
	}
	if r.Kind == Generate {
		return r.stream.Event(r.GenerateBody(r.text.String(), r.ids, "", r.usage))
	}
	return r.stream.Event(r.TextChunk(text))
}

// Heartbeat writes a comment on a stream that has begun, and nothing otherwise.
func (r *Responder) Heartbeat() error {
	if r.stream == nil || !r.stream.Started() || r.ended {
		return nil
	}
	return r.stream.Heartbeat()
}

// Finish ends the answer: the model finished. usage.Completion may be 0 to take
// the number of ids given to Text.
func (r *Responder) Finish(finish Finish, usage Usage) error {
	if r.ended {
		return nil
	}
	if usage.Completion == 0 {
		usage.Completion = len(r.ids)
	}
	if r.stream == nil {
		r.ended = true
		if r.Kind == Generate {
			return WriteJSON(r.w, http.StatusOK, r.GenerateBody(r.text.String(), r.ids, finish, usage))
		}
		return WriteJSON(r.w, http.StatusOK, r.Whole(r.text.String(), finish, usage))
	}
	err := r.Begin(usage)
	r.ended = true
	if r.Kind == Generate {
		r.stream.Event(r.GenerateBody(r.text.String(), r.ids, finish, usage))
	} else {
		r.stream.Event(r.FinishChunk(finish))
		if r.includeUsage {
			r.stream.Event(r.UsageChunk(usage))
		}
	}
	if err == nil {
		err = r.stream.Done() // repeats the first error of the stream
	}
	return err
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
