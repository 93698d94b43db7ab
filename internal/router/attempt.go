package router

import (
	"context"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router/upstream"
)

// attempt is one pair's try. The handler's goroutine owns it; the two legs run
// as tasks and report to it.
type attempt struct {
	*request
	pair
	sentIn epochs
	room   id.Room
	record *Attempt

	prefillDone chan *legError // one message: nil, or how the leg failed
	decodeDone  chan *legError // the same, after the last of steps
	steps       chan step      // unbuffered: decode's leg reads no further than the client does
	withdrawP   context.CancelCauseFunc
	withdrawD   context.CancelCauseFunc
	endedP      chan struct{}
	endedD      chan struct{}

	prefillOK bool // prefill's answer was 2xx
	head      bool // decode's head came: the first token exists
	saidP     bool // prefill ended its room by itself
	saidD     bool
}

// attempt runs one try to its end: both legs sent, decode's answer relayed, and
// on every way out both legs ended, both workers judged.
func (rq *request) attempt(p pair, sentIn epochs) outcome {
	a := &attempt{
		request: rq, pair: p, sentIn: sentIn, room: id.NewRoom(),
		prefillDone: make(chan *legError, 1), decodeDone: make(chan *legError, 1), steps: make(chan step),
		endedP: make(chan struct{}), endedD: make(chan struct{}),
	}
	rq.rec.update(func(rec *Record, now float64) {
		a.record = &Attempt{Room: a.room, Prefill: p.prefill.url, Decode: p.decode.url, Sent: now}
		rec.Attempts = append(rec.Attempts, a.record)
	})
	rq.pool.mu.Lock()
	port, fenceP, fenceD := p.prefill.bootstrapPort(), p.prefill.fence, p.decode.fence
	rq.pool.mu.Unlock()
	local := rq.body.Local
	bodyP, bodyD := rq.cfg.Connector.Bodies(rq.body, upstream.Leg{
		RID: rq.rec.r.RID, Room: a.room, BootstrapHost: p.prefill.bootstrapHost, BootstrapPort: port,
		RequestTime: rq.rec.r.Received.Unix(), Remaining: time.Until(rq.deadline),
	})
	// A worker that is fenced takes its legs along.
	ctxP, withdrawP := context.WithCancelCause(fenceP)
	ctxD, withdrawD := context.WithCancelCause(fenceD)
	a.withdrawP, a.withdrawD = withdrawP, withdrawD

	if local { // decode computes the prompt itself; its body is the client's own
		bodyD = upstream.Parts{rq.body.Bytes}
		a.saidP = true
		withdrawP(nil)
		rq.pool.release(p.prefill)
		close(a.endedP)
	} else {
		rq.group.Task("prefill leg", func(context.Context) {
			defer close(a.endedP)
			defer withdrawP(nil)
			defer rq.pool.release(p.prefill)
			a.prefillDone <- rq.prefillLeg(ctxP, p.prefill, bodyP)
		})
	}
	send := func() {
		rq.group.Task("decode leg", func(context.Context) {
			defer close(a.endedD)
			defer withdrawD(nil)
			defer rq.pool.release(p.decode)
			a.decodeDone <- rq.decodeLeg(ctxD, p.decode, bodyD, a.steps)
		})
	}
	sent := local || rq.cfg.Connector.DecodeEarly()
	if sent {
		send()
	}
	o := a.run(func() {
		if !sent {
			sent = true
			send()
		}
	})
	if !sent {
		rq.pool.release(p.decode)
		close(a.endedD)
	}
	a.close(&o)
	return o
}

// run is the attempt's event loop. start sends decode's leg if that had to wait.
func (a *attempt) run(start func()) outcome {
	beat := time.NewTimer(a.cfg.Heartbeat)
	defer beat.Stop()
	prefillDone := a.prefillDone
	for {
		select {
		case <-a.ctx.Done():
			cause := a.gone()
			return outcome{cause: cause, who: whoOf(cause)}
		case failed := <-prefillDone:
			prefillDone = nil
			if failed == nil {
				a.prefillOK, a.saidP = true, true
				a.note(func(r *Attempt, now float64) { r.Exports = now })
				start()
				continue
			}
			a.saidP = failed.answered
			if a.head {
				continue // decode has the KV: what becomes of prefill's connection is nothing
			}
			select { // decode's head may be here already, and then it counts
			case s := <-a.steps:
				if o, ended := a.take(s); ended {
					return o
				}
				continue
			default:
			}
			return failed.outcome(whoPrefill, a.guilty(a.prefill, failed))
		case failed := <-a.decodeDone:
			if failed == nil { // its last step would have ended the attempt
				failed = &legError{cause: room.Because(room.Bug, "decode's leg ended without a last step")}
			}
			a.saidD = failed.answered
			return failed.outcome(whoDecode, a.guilty(a.decode, failed))
		case s := <-a.steps:
			if o, ended := a.take(s); ended {
				return o
			}
			beat.Reset(a.cfg.Heartbeat)
		case <-beat.C:
			beat.Reset(a.cfg.Heartbeat)
			if !a.sse.Started() {
				continue
			}
			a.sse.SetTimeout(a.writeTimeout())
			if err := a.sse.Heartbeat(); err != nil {
				return a.unread(err)
			}
		}
	}
}

// take handles one step of decode's leg and says whether it ended the attempt.
func (a *attempt) take(s step) (o outcome, ended bool) {
	switch {
	case s.head:
		a.head = true
		a.note(func(r *Attempt, now float64) { r.Head = now })
		return o, false
	case s.inband != nil:
		a.saidD = true
		return outcome{cause: s.inband, who: whoDecode, blame: a.guilty(a.decode, &legError{cause: s.inband, answered: true})}, true
	case s.whole != nil:
		a.saidD = true
		a.rec.update(func(r *Record, now float64) { r.FirstByte, r.Tokens = now, s.tokens })
		return outcome{cause: &room.Cause{Code: room.Done}, who: whoDecode, whole: s.whole}, true
	case !s.data && !a.sse.Started():
		return o, false // a comment before the first event must not make the status
	}
	if !a.sse.Started() {
		if s.done {
			return outcome{cause: room.Because(room.Protocol, "the decode worker's stream ended before its first event"),
				who: whoDecode, blame: a.decode}, true
		}
		a.rec.update(func(r *Record, now float64) { r.FirstByte = now })
	}
	a.sse.SetTimeout(a.writeTimeout())
	if err := a.sse.Raw(s.raw); err != nil {
		return a.unread(err), true
	}
	a.rec.update(func(r *Record, _ float64) {
		if s.data && !s.done {
			r.Events++
		}
		r.Tokens = max(r.Tokens, s.tokens)
	})
	if s.done {
		a.saidD = true
		return outcome{cause: &room.Cause{Code: room.Done}, who: whoDecode}, true
	}
	return o, false
}

// unread is a client that took no more bytes: gone, or too slow for one write
// deadline, which is the same.
func (a *attempt) unread(err error) outcome {
	if a.ctx.Err() != nil {
		cause := a.gone()
		return outcome{cause: cause, who: whoOf(cause)}
	}
	return outcome{cause: room.Because(room.ClientGone, "the client took no bytes: %v", err), who: whoClient}
}

// note changes the attempt's part of the record.
func (a *attempt) note(fn func(r *Attempt, now float64)) {
	a.rec.update(func(_ *Record, now float64) { fn(a.record, now) })
}

// guilty returns the worker that a leg's failure is charged to: the leg's own
// for a broken connection or a fault of its own, the other for a complaint
// about it, nobody for aborts, rejections and what either may have caused.
func (a *attempt) guilty(w *worker, failed *legError) *worker {
	other := a.prefill
	if w == a.prefill {
		other = a.decode
	}
	if failed.cause.Code == room.Draining {
		a.pool.draining(w)
	}
	if failed.refused {
		return nil // it is out of rotation until it is back, and then owes nothing
	}
	if a.hurried(failed.cause) {
		return nil
	}
	switch failed.cause.Code {
	case room.EngineFailed, room.Bug:
		return w
	case room.PeerGone, room.Protocol:
		if failed.answered {
			return other
		}
		return w
	case room.TransferLost, room.TransferStall, room.BootstrapTimeout, room.UnpairedTimeout, room.Corrupt, room.CommitMismatch:
		return other
	}
	return nil
}

// close ends what still runs of both legs and judges both workers.
func (a *attempt) close(o *outcome) {
	now := time.Now()
	done, cause := o.cause.Code == room.Done, o.cause
	a.note(func(r *Attempt, t float64) {
		r.Ended, r.Code, r.Who = t, string(cause.Code), o.who
		if !done {
			r.Detail = reason{cause.Detail, o.private}.String()
		}
		if o.blame != nil {
			r.Charged = o.blame.url
		}
	})
	a.judge(o, now)
	if done {
		// Prefill's answer and the end of decode's may trail a little; waiting
		// for them keeps the connections for the next request.
		grace := time.AfterFunc(prefillGrace, func() {
			late := room.Because(room.LegLost, "no answer within %v after decode had ended", prefillGrace)
			a.withdrawP(late)
			a.withdrawD(late)
		})
		a.group.Task("trailing legs", func(context.Context) {
			<-a.endedD
			<-a.endedP
			grace.Stop()
		})
		return
	}
	a.withdrawP(cause)
	a.withdrawD(cause)
	target := api.AbortTarget{RID: a.rec.r.RID, Room: a.room}
	if !a.saidP || a.prefillOK {
		o.acks[0] = a.prefill.aborts.add(target)
	}
	if !a.saidD {
		o.acks[1] = a.decode.aborts.add(target)
	}
	<-a.endedD // at once: their contexts have ended
	<-a.endedP
}

func (a *attempt) judge(o *outcome, now time.Time) {
	verdicts := map[*worker]verdict{a.prefill: neutral, a.decode: neutral}
	if a.body.Local && o.cause.Code == room.Done { // it proves nothing of prefill
		verdicts[a.decode] = good
	} else if o.cause.Code == room.Done {
		verdicts[a.prefill], verdicts[a.decode] = good, good
	} else if a.prefillOK {
		verdicts[a.prefill] = good
	}
	if o.blame != nil {
		verdicts[o.blame] = guilty
		a.metrics.attempts.WithLabelValues(string(o.blame.role), o.blame.url).Inc()
	}
	a.pool.judge(a.prefill, a.sentIn.prefill, verdicts[a.prefill], o.told(), now)
	a.pool.judge(a.decode, a.sentIn.decode, verdicts[a.decode], o.told(), now)
	together := neutral
	switch {
	case a.body.Local:
	case o.cause.Code == room.Done:
		together = good
	case ofPair(o.cause.Code) && !a.hurried(o.cause):
		together = guilty
	}
	a.pool.judgePair(a.pair, a.sentIn.pair, together, o.told(), now)
}

// hurried says that a wait ended because the request's own time did, nearly: workers
// wait for each other a part of what remains, and of nearly nothing that is too little
// for anybody. Under overload most requests come to that point.
func (a *attempt) hurried(cause *room.Cause) bool {
	return cause.Outcome() == room.Timeout && time.Until(a.deadline) < hurry
}

// ofPair says that a cause lies between the two workers: each may serve with others.
func ofPair(code room.Code) bool {
	switch code {
	case room.LayoutMismatch, room.TokenizationMismatch, room.BootstrapTimeout,
		room.TransferLost, room.TransferStall, room.Corrupt, room.CommitMismatch:
		return true
	}
	return false
}

// writeWhole writes an answer that is not a stream.
func (rq *request) writeWhole(w *whole) error {
	rq.sse.SetTimeout(rq.writeTimeout())
	return rq.sse.Whole(w.status, w.contentType, w.body)
}
