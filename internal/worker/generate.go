package worker

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/prefill"
	"github.com/tandem-llm/tandem/internal/room"
)

// abortGrace is how long a handler whose client left waits for the engine's
// word. The engine stops within one step; one that is stuck in the library must
// not keep the handler.
const abortGrace = time.Second

// generate serves the three generating routes.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, p *parts, kind api.Kind) {
	body, cause := api.ReadBody(w, r, 0, 0)
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	call, cause := api.Parse(kind, body, api.Limits{})
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	if s.draining.Load() {
		api.WriteError(w, room.Because(room.Draining, "this worker is leaving service"))
		return
	}
	ctx, cancel, due := deadline(r.Context(), call)
	defer cancel()
	tokens, cause := p.tokenize(call)
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	if p.prefill != nil {
		s.prefill(ctx, w, p, call, tokens, due)
		return
	}
	s.decode(ctx, w, p, call, tokens, due)
}

// tokenize returns the prompt's tokens, at least one.
func (p *parts) tokenize(call *api.Call) ([]engine.Token, *room.Cause) {
	if call.IDs != nil {
		for i, t := range call.IDs {
			if int(t) >= p.info.Vocab {
				return nil, room.Because(room.BadRequest, "input_ids: id %d at %d is outside the vocabulary of %d", t, i, p.info.Vocab)
			}
		}
		return call.IDs, nil
	}
	text, special, bos := call.Text, false, true
	if call.Kind == api.Chat {
		now := time.Now().Unix()
		if call.Leg != nil && call.Leg.RequestTime > 0 {
			now = call.Leg.RequestTime
		}
		var err error
		if text, err = p.chat.Render(call.Messages, true, now); err != nil {
			return nil, asCause(err, room.BadRequest)
		}
		special, bos = true, false
	}
	tokens, err := p.engine.Tokenizer().Encode(text, special, bos)
	if err != nil {
		return nil, asCause(err, room.BadRequest)
	}
	if len(tokens) == 0 {
		return nil, room.Because(room.BadRequest, "prompt: it has no tokens")
	}
	return tokens, nil
}

func asCause(err error, code room.Code) *room.Cause {
	var c *room.Cause
	if errors.As(err, &c) {
		return c
	}
	return room.Because(code, "%v", err)
}

// prefill serves one leg: it answers when the room is terminal.
func (s *Server) prefill(ctx context.Context, w http.ResponseWriter, p *parts, call *api.Call, tokens []engine.Token, due time.Time) {
	if call.Leg == nil {
		api.WriteError(w, room.Because(room.BadRequest, "bootstrap_room: missing: a prefill worker serves only one leg of a pair; send requests to the router"))
		return
	}
	rid := call.Leg.RID
	if rid == "" {
		rid = id.NewRID()
	}
	cause := p.prefill.Serve(ctx, prefill.Request{RID: rid, Room: call.Leg.Room, Tokens: tokens, Due: due})
	if cause.Code != room.Done {
		api.WriteError(w, cause)
		return
	}
	_ = api.WriteJSON(w, http.StatusOK, api.LegDone{RID: rid, Room: call.Leg.Room, Outcome: "ok", Prompt: len(tokens), Computed: len(tokens) - 1}.JSON())
}

// decode serves a generation, with a hand-over or alone.
func (s *Server) decode(ctx context.Context, w http.ResponseWriter, p *parts, call *api.Call, tokens []engine.Token, due time.Time) {
	req := decode.Request{RID: call.RID, Tokens: tokens, Params: call.Params, Due: due}
	if call.MaxTokensDefault {
		req.Params.MaxTokens = max(1, min(req.Params.MaxTokens, p.info.Cells-len(tokens)))
	}
	gone := room.ClientGone
	if leg := call.Leg; leg != nil {
		req.RID, req.Room, req.Host, req.Port = leg.RID, leg.Room, leg.BootstrapHost, leg.BootstrapPort
		gone = room.LegLost
	}
	if req.RID == "" || call.Leg == nil {
		req.RID = id.NewRID()
	}
	gen, cause := p.decode.Begin(req)
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	st := &stream{
		parts: p, req: req, gen: gen,
		resp:   api.NewResponder(w, call, api.Answer{Kind: call.Kind, RID: req.RID, Model: p.info.Model, Created: time.Now().Unix()}, 0),
		detok:  &chat.Detokenizer{},
		stop:   chat.NewStopper(),
		usage:  api.Usage{Prompt: len(tokens)},
		gone:   gone,
		tokens: p.engine.Tokenizer(),
	}
	if call.Kind == api.Chat {
		st.stop = chat.NewStopper(p.stop)
	}
	st.run(ctx)
}
