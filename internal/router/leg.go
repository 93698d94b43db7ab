package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router/upstream"
)

// legError is how a leg failed.
type legError struct {
	cause    *room.Cause
	answered bool   // the worker said so itself: there its room has ended
	died     bool   // the connection broke after the worker had the request
	refused  bool   // nobody listens at the worker's address
	private  string // what is for the log and the record alone: it may name addresses
}

// outcome is how the attempt ends with the leg.
func (e *legError) outcome(who string, blame *worker) outcome {
	return outcome{cause: e.cause, who: who, died: e.died, refused: e.refused, private: e.private, blame: blame}
}

// post sends one leg and returns its answer's head if that is 2xx. The
// transport sends it once more if a kept-alive connection turns out closed
// before any byte of an answer: only then is it sure to be no second request.
func (rq *request) post(ctx context.Context, w *worker, body upstream.Parts) (*http.Response, *legError) {
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { wrote.Store(wrote.Load() || i.Err == nil) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+rq.kind.Path(), body.Reader())
	if err != nil {
		return nil, &legError{cause: room.Because(room.Bug, "the request to the %s worker could not be made", w.role), private: err.Error()}
	}
	req.ContentLength = body.Len()
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body.Reader()), nil }
	for k, v := range rq.header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = []string{} // not sent: it tells the transport to
	resp, err := w.legs.Do(req)
	if err != nil {
		failed := lost(ctx, w, err, wrote.Load())
		if failed.refused {
			rq.unreachable(w, err)
		}
		return nil, failed
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	late := time.AfterFunc(errorBodyWait, func() { resp.Body.Close() })
	defer late.Stop()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // what there is of it will do
	return nil, &legError{cause: api.ParseError(resp.StatusCode, text), answered: true}
}

// lost is a leg whose connection failed.
func lost(ctx context.Context, w *worker, err error, had bool) *legError {
	var cause *room.Cause
	if errors.As(context.Cause(ctx), &cause) { // fenced, or withdrawn by us
		return &legError{cause: cause, died: had && cause.Code == room.PeerGone}
	}
	failed := &legError{died: had, refused: !had && refusedBy(err), private: err.Error()}
	if had {
		failed.cause = room.Because(room.PeerGone, "the connection to the %s worker broke", w.role)
	} else {
		failed.cause = room.Because(room.PeerGone, "the %s worker could not be reached", w.role)
	}
	return failed
}

// prefillLeg runs to the end of prefill's answer.
func (rq *request) prefillLeg(ctx context.Context, w *worker, body upstream.Parts) *legError {
	resp, failed := rq.post(ctx, w, body)
	if failed != nil {
		return failed
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxInfo)) // the status said it all
	return nil
}

// step is one message of decode's leg to the handler.
type step struct {
	head   bool        // a 2xx head came
	raw    []byte      // one event to relay
	data   bool        // ... which is more than a comment
	done   bool        // ... which is the normal end
	inband *room.Cause // ... which is an error
	tokens int         // completion_tokens, if it says
	whole  *whole      // an answer that is not a stream
}

// whole is a complete answer that is not a stream.
type whole struct {
	status      int
	contentType string
	body        []byte
}

// decodeLeg hands decode's answer over, step by step, until it ends or ctx does.
// It returns how it failed, nil if the answer came to its own end.
func (rq *request) decodeLeg(ctx context.Context, w *worker, body upstream.Parts, out chan<- step) *legError {
	give := func(s step) bool {
		select {
		case out <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	resp, failed := rq.post(ctx, w, body)
	if failed != nil {
		return failed
	}
	defer resp.Body.Close()
	if !give(step{head: true}) {
		return lost(ctx, w, ctx.Err(), true)
	}
	contentType := resp.Header.Get("Content-Type")
	if !isStream(contentType) {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxWhole+1))
		switch {
		case err != nil:
			return lost(ctx, w, err, true)
		case len(body) > maxWhole:
			return &legError{cause: room.Because(room.AnswerTooLarge, "the answer is above the limit of %d bytes", maxWhole)}
		case len(body) == 0:
			return &legError{cause: room.Because(room.Protocol, "the decode worker's answer is empty")}
		case !give(step{whole: &whole{resp.StatusCode, contentType, body}, tokens: completionTokens(body)}):
			return lost(ctx, w, ctx.Err(), true)
		}
		return nil
	}
	events := api.NewEventReader(resp.Body, 0)
	for {
		e, err := events.Next()
		if err == nil {
			w.hear()
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return &legError{cause: room.Because(room.PeerGone, "the decode worker's stream broke off before its end"), died: true}
		}
		if errors.Is(err, api.ErrEventTooLong) { // our limit: the worker lives and did as it was asked
			return &legError{cause: room.Because(room.AnswerTooLarge, "an event of the stream is above the limit of %d bytes", api.MaxEvent)}
		}
		if err != nil {
			return lost(ctx, w, err, true)
		}
		s := step{raw: bytes.Clone(e.Raw), data: e.Data != nil, done: e.Done(), tokens: completionTokens(e.Data)}
		if cause, ok := api.ParseErrorEvent(e.Data); ok {
			s.inband = cause
		} else if e.Name == "error" {
			s.inband = api.ParseError(http.StatusInternalServerError, e.Data)
		}
		if !give(s) {
			return lost(ctx, w, ctx.Err(), true)
		}
		if s.done || s.inband != nil { // what may follow only keeps the connection usable
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxError))
			return nil
		}
	}
}

func isStream(contentType string) bool {
	const want = "text/event-stream"
	return len(contentType) >= len(want) && contentType[:len(want)] == want
}

// completionTokens finds the count that usage reports, 0 if there is none.
func completionTokens(data []byte) int {
	key := []byte(`"completion_tokens":`)
	i := bytes.LastIndex(data, key)
	if i < 0 {
		return 0
	}
	digits := bytes.TrimLeft(data[i+len(key):], " ")
	n := 0
	for n < len(digits) && n < 9 && digits[n] >= '0' && digits[n] <= '9' {
		n++
	}
	v, _ := strconv.Atoi(string(digits[:n])) // no digits: 0
	return v
}
