package worker

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/room"
)

// stream carries one call's generations to its client, in the form the call
// asked for. They share their fate: the first that fails ends them all.
type stream struct {
	*parts
	call    *api.Call
	resp    *api.Responder
	choices []*choice
	wake    <-chan struct{}
	usage   api.Usage // of the prompts
	gone    room.Code // what a lost connection means: the client's, or the router's

	cause *room.Cause // why all were ended; nil: they were not
	live  int
}

func newStream(p *parts, call *api.Call, prompts [][]engine.Token, gens []*decode.Generation, wake <-chan struct{}, gone room.Code, resp *api.Responder) *stream {
	s := &stream{parts: p, call: call, resp: resp, wake: wake, gone: gone, live: len(gens)}
	for i, g := range gens {
		s.choices = append(s.choices, newChoice(p, call, i, g, prompts[i/call.N]))
	}
	for _, tokens := range prompts {
		s.usage.Prompt += len(tokens)
	}
	return s
}

// run returns when the answer is complete or its client is gone.
func (s *stream) run(ctx context.Context) {
	beat := time.NewTicker(api.Heartbeat)
	defer beat.Stop()
	done := ctx.Done()
	var grace <-chan time.Time
	for s.live > 0 {
		select {
		case <-s.wake:
			for _, c := range s.choices {
				if !c.ended {
					s.take(c)
				}
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
			for _, c := range s.choices {
				c.gen.Abandon(s.ending(ctx))
			}
			grace = nil
		}
	}
	for _, c := range s.choices {
		if c.cause.Code != room.Done {
			if s.cause == nil {
				s.cause = c.cause
			}
			s.resp.Fail(s.cause)
			return
		}
	}
	_ = s.resp.Close(s.usage) // a failed write: nobody is there
}

// ending says what the end of a request's context means.
func (s *stream) ending(ctx context.Context) *room.Cause {
	var c *room.Cause
	if errors.As(context.Cause(ctx), &c) {
		return c
	}
	return room.Because(s.gone, "the connection ended")
}

// abort ends all that have not ended. The first cause counts.
func (s *stream) abort(cause *room.Cause) {
	if s.cause != nil {
		return
	}
	s.cause = cause
	for _, c := range s.choices {
		if !c.ended {
			c.gen.Abort(cause)
		}
	}
}

// take writes what is new of one choice.
func (s *stream) take(c *choice) {
	before := c.begun
	part, ended := c.take()
	c.ended = ended
	if c.begun && !before {
		s.write(s.begin(c))
	}
	if len(part.IDs) > 0 {
		s.write(s.resp.Add(part))
	}
	if !ended {
		return
	}
	s.live--
	tail, end, cause := c.finish()
	if c.cause = cause; cause.Code != room.Done {
		s.abort(cause)
		return
	}
	if !c.begun { // it ended before its first token
		s.write(s.begin(c))
	}
	if tail.Text != "" || len(tail.Calls) > 0 || len(tail.Logs) > 0 {
		s.write(s.resp.Add(tail))
	}
	if c.gen == c.lead { // the others find what the first one left
		s.usage.Cached += c.cached
	}
	s.resp.Cached(c.index, c.cached)
	s.write(s.resp.End(c.index, end))
}

// begin tells the answer of a choice's prompt.
func (s *stream) begin(c *choice) error {
	var input []api.Log
	if s.call.Kind == api.Generate {
		input = c.promptLogs()
	}
	s.resp.Prompt(c.index, api.Usage{Prompt: len(c.prompt)}, input)
	if err := s.resp.Begin(s.usage); err != nil || !s.call.Echo {
		return err
	}
	return s.resp.Add(c.echo())
}

// write aborts the request when its client does not take what is written.
func (s *stream) write(err error) {
	if err != nil {
		s.abort(room.Because(s.gone, "%v", err))
	}
}
