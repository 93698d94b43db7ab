package router

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router/upstream"
)

// TimeoutHeader lets a client choose its deadline, within the router's cap.
const TimeoutHeader = "X-Tandem-Timeout-Ms"

// request is one client's request while its handler runs.
type request struct {
	*Router
	ctx      context.Context // ends with the client, the deadline or the server
	w        http.ResponseWriter
	header   http.Header // what the legs are sent of the client's headers
	kind     api.Kind
	body     *upstream.Body
	rec      *live
	deadline time.Time // monotonic
	sse      *api.SSE
}

// passed are the client's headers that both legs get.
var passed = []string{"Authorization", "Traceparent", "Tracestate", "X-Request-Id"}

func (r *Router) serve(w http.ResponseWriter, q *http.Request, kind api.Kind) {
	received := time.Now()
	limit, cause := r.timeout(q)
	if cause != nil {
		api.WriteError(w, cause) // no record: nothing was accepted yet
		r.metrics.requests.WithLabelValues(cause.Outcome().String(), api.Label(cause.Code)).Inc()
		return
	}
	rq := &request{Router: r, w: w, kind: kind, deadline: received.Add(limit), header: http.Header{}}
	base, abort := context.WithCancelCause(q.Context())
	defer abort(nil)
	rq.rec, cause = r.book.open(Record{RID: id.NewRID(), API: kind.Path(), Received: received, Deadline: limit.Seconds()}, r.cfg.MaxInFlight, abort)
	if cause != nil {
		api.WriteError(w, cause)
		r.metrics.requests.WithLabelValues(cause.Outcome().String(), api.Label(cause.Code)).Inc()
		return
	}
	// Whatever happens, also a panic, the request has an end.
	defer func() {
		if rq.rec.Finalize(room.Because(room.Bug, "the handler ended without an outcome"), whoRouter) {
			r.log.Error("a handler ended without an outcome", "rid", rq.rec.r.RID)
		}
	}()
	w.Header().Set("X-Tandem-Rid", string(rq.rec.r.RID))
	bytes, done, cause := r.cfg.Bodies.Read(w, q, r.cfg.MaxBody, min(r.cfg.BodyTimeout, limit))
	defer done() // a retry sends it again
	if cause == nil {
		rq.body, cause = upstream.Examine(rq.kind, bytes)
	}
	if cause != nil {
		who := whoClient
		if cause.Code == room.QueueFull {
			who = whoRouter
		}
		rq.end(outcome{cause: cause, who: who})
		return
	}
	rq.rec.update(func(rec *Record, _ float64) {
		rec.Label, rec.Model, rec.Stream = rq.body.Label, shortened(rq.body.Model), rq.body.Stream
	})
	if cause := r.serves(rq.model()); cause != nil {
		rq.end(outcome{cause: cause, who: whoClient})
		return
	}
	for _, h := range passed {
		if v := q.Header.Values(h); len(v) > 0 {
			rq.header[h] = v
		}
	}
	base, unwatch := api.Watch(base, q)
	defer unwatch()
	ctx, cancel := context.WithDeadlineCause(base, rq.deadline, room.Because(room.Deadline, "not finished within %v", limit))
	defer cancel()
	rq.ctx = ctx
	rq.sse = api.NewSSE(w, r.cfg.WriteTimeout)
	rq.end(rq.attempts())
}

// maxModelShown bounds what of an unknown model's name is repeated, in bytes.
const maxModelShown = 128

func shortened(name string) string {
	if len(name) <= maxModelShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxModelShown], "") + "…"
}

// model is which model the request must go to, "" for any.
func (rq *request) model() string {
	if rq.cfg.AnyModel {
		return ""
	}
	return rq.body.Model
}

// serves refuses a model that no worker serves, once all have told theirs.
func (r *Router) serves(model string) *room.Cause {
	served, all := r.pool.models()
	if model == "" || !all || slices.ContainsFunc(served, func(s serverInfo) bool { return s.Model == model }) {
		return nil
	}
	names := make([]string, len(served))
	for i, s := range served {
		names[i] = strconv.Quote(s.Model)
	}
	return room.Because(room.ModelNotFound, "model: %q is not served here, but %s", shortened(model), strings.Join(names, ", "))
}

// timeout returns how long the request may take.
func (r *Router) timeout(q *http.Request) (time.Duration, *room.Cause) {
	s := q.Header.Get(TimeoutHeader)
	if s == "" {
		return r.cfg.DefaultDeadline, nil
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 1 {
		return 0, room.Because(room.BadRequest, "the header %s is %.40q: send whole milliseconds above 0", TimeoutHeader, s)
	}
	if ms > r.cfg.MaxDeadline.Milliseconds() {
		return r.cfg.MaxDeadline, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// outcome is how an attempt, and with the last one the request, ended.
type outcome struct {
	cause   *room.Cause
	who     string
	died    bool               // the connection to a worker that had the request, blame, broke
	refused bool               // a worker that never had it does not listen
	private string             // what of the cause is not for the client
	acks    [2]<-chan struct{} // nil, or closes when a leg's abort is acknowledged
	blame   *worker            // whose fault it was, nil if nobody's
	whole   *whole             // the answer, if it is not a stream
}

// told is the cause as the log and /health have it.
func (o outcome) told() *room.Cause {
	return &room.Cause{Code: o.cause.Code, Detail: reason{o.cause.Detail, o.private}.String()}
}

// attempts tries pairs until one succeeds or trying again is not allowed: after
// the first byte, for a cause that another pair cannot mend, or once too often.
func (rq *request) attempts() outcome {
	not := avoid{}
	deaths := 0 // in a row, of workers that had the request
	lost := false
	var last outcome
	for n := 1; ; n++ {
		if rq.ctx.Err() != nil { // aborted while it was read
			cause := rq.gone()
			return outcome{cause: cause, who: whoOf(cause)}
		}
		p, sentIn, cause := rq.pool.pick(time.Now(), rq.model(), not)
		if cause != nil {
			if n > 1 && !last.refused {
				return last // it says more than "no pair"
			}
			return outcome{cause: cause, who: whoRouter}
		}
		sent := time.Now()
		last = rq.attempt(p, sentIn)
		if last.cause.Code == room.Done {
			return last
		}
		not.add(p, last.blame)
		lost = lost || last.cause.Outcome() == room.PeerLost
		again := !rq.sse.Started() && last.cause.Retryable() && rq.ctx.Err() == nil && (n < rq.cfg.Attempts ||
			// Workers that die in a row may take every try along: with two that had no
			// part in it, one more is worth it. Who wants no retry gets none.
			n == rq.cfg.Attempts && n > 1 && lost && rq.pool.untried(time.Now(), rq.model(), not))
		poisonous := last.died && deaths > 0
		if again && !last.refused && !poisonous && !rq.pool.any(time.Now(), rq.model()) {
			return last // nothing to wait for: its workers are fenced, and there are no others
		}
		if !again && !poisonous {
			return last
		}
		if cause := rq.await(last.acks); cause != nil {
			last.cause, last.who = cause, whoOf(cause)
			return last
		}
		// The abort went over a new connection: whether that was refused tells a
		// death from a connection that broke.
		if last.died && last.blame != nil && rq.pool.gone(last.blame, sent) {
			deaths++
		} else {
			deaths = 0
		}
		if deaths > 1 {
			last.cause = room.Because(room.Poisoned, "%d workers in a row died with this request, the last by %v", deaths, last.cause)
			return last
		}
		if !again {
			return last
		}
		rq.metrics.retries.Inc()
	}
}

// await waits until both legs acknowledged their abort, or AckWait: the new
// attempt shall not find the old one's memory taken.
func (rq *request) await(acks [2]<-chan struct{}) *room.Cause {
	patience := time.NewTimer(rq.cfg.AckWait)
	defer patience.Stop()
	for _, ack := range acks {
		if ack == nil {
			continue
		}
		select {
		case <-ack:
		case <-patience.C:
			return nil
		case <-rq.ctx.Done():
			return rq.gone()
		}
	}
	return nil
}

// gone says why the request's context ended.
func (rq *request) gone() *room.Cause {
	var cause *room.Cause
	if errors.As(context.Cause(rq.ctx), &cause) {
		return cause
	}
	return room.Because(room.ClientGone, "the client closed its connection")
}

func whoOf(cause *room.Cause) string {
	if cause.Code == room.ClientGone {
		return whoClient
	}
	return whoRouter
}

// end answers the client, as far as it still can be answered, and finalizes.
func (rq *request) end(o outcome) {
	switch {
	case o.cause.Code == room.Done && o.whole != nil:
		if err := rq.writeWhole(o.whole); err != nil {
			o.cause, o.who = room.Because(room.ClientGone, "the answer could not be written: %v", err), whoClient
		}
	case o.cause.Code == room.Done: // the stream has written its own end
	case rq.sse != nil && rq.sse.Started():
		rq.sse.SetTimeout(rq.writeTimeout())
		_ = rq.sse.Error(public(o.cause)) // and no [DONE]; a client that left needs neither
	default:
		api.WriteError(rq.w, public(o.cause))
	}
	rq.rec.Finalize(o.told(), o.who)
}

// public is what a client is told of a cause: what a worker has written of its own
// network, an error of the operating system or an address, is for the record alone.
func public(cause *room.Cause) *room.Cause {
	for _, mark := range []string{"://", "dial tcp", "read tcp", "write tcp", "rpc error"} {
		if strings.Contains(cause.Detail, mark) && cause.Outcome() != room.Rejected {
			return &room.Cause{Code: cause.Code}
		}
	}
	return cause
}

// writeTimeout is that of the next write: the deadline counts for slow readers
// as well.
func (rq *request) writeTimeout() time.Duration {
	return min(rq.cfg.WriteTimeout, max(lateWrite, time.Until(rq.deadline)+lateWrite))
}
