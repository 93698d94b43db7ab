package worker

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/room"
)

// stream carries one generation's tokens to its client: as text, cut at stop
// strings, in the form the call asked for.
type stream struct {
	*parts
	req    decode.Request
	gen    *decode.Generation
	resp   *api.Responder
	tokens engine.Tokenizer
	detok  *chat.Detokenizer
	stop   *chat.Stopper
	usage  api.Usage
	gone   room.Code // what a lost connection means: the client's, or the router's

	aborted bool
	stopped bool // a stop string was reached
}

// run returns when the answer is complete or its client is gone.
func (s *stream) run(ctx context.Context) {
	beat := time.NewTicker(api.Heartbeat)
	defer beat.Stop()
	done := ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case <-s.gen.Wake():
			if s.take() {
				return
			}
		case <-beat.C:
			if err := s.resp.Heartbeat(); err != nil {
				s.abort(room.Because(s.gone, "%v", err))
			}
		case <-done:
			s.abort(s.ending(ctx))
			done = nil
			timer := time.NewTimer(abortGrace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			s.gen.Abandon(s.ending(ctx))
			grace = nil
		}
	}
}

// ending says what the end of a request's context means.
func (s *stream) ending(ctx context.Context) *room.Cause {
	var c *room.Cause
	if errors.As(context.Cause(ctx), &c) {
		return c
	}
	return room.Because(s.gone, "the connection ended")
}

func (s *stream) abort(cause *room.Cause) {
	if !s.aborted {
		s.aborted = true
		s.decode.Abort(s.req.RID, s.req.Room, cause)
	}
}

// take writes what is new. It says whether the request has ended.
func (s *stream) take() bool {
	tokens, ended := s.gen.Take()
	if len(tokens) > 0 && !s.stopped {
		text := ""
		var ids []engine.Token
		for _, o := range tokens {
			t := o.Token
			ids = append(ids, t)
			part, stopped := s.stop.Push(s.detok.Push(s.tokens.Piece(t)))
			text += part
			if stopped {
				s.stopped = true
				// The answer is complete: this is no abort.
				s.abort(&room.Cause{Code: room.Done})
				break
			}
		}
		err := s.resp.Begin(s.usage)
		if err == nil {
			err = s.resp.Text(text, ids...)
		}
		if err != nil {
			s.abort(room.Because(s.gone, "%v", err))
		}
	}
	if !ended {
		return false
	}
	cause, res := s.gen.Ending()
	if cause.Code != room.Done {
		s.resp.Fail(cause)
		return true
	}
	finish := api.FinishStop
	if res.Finish == engine.FinishLength && !s.stopped {
		finish = api.FinishLength
	}
	if !s.stopped {
		tail, stopped := s.stop.Push(s.detok.Flush())
		tail += s.stop.Flush()
		if stopped {
			finish = api.FinishStop
		}
		_ = s.resp.Text(tail) // a failed write is repeated by Finish, and nobody is there
	}
	_ = s.resp.Finish(finish, s.usage)
	return true
}
