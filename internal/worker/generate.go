package worker

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
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
	body, done, cause := api.ReadBody(w, r, 0, 0)
	defer done() // the call's texts are the body's
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
	if call.Leg != nil && call.Local {
		api.WriteError(w, room.Because(room.BadRequest, "bootstrap_room: several prompts, and log probabilities of a prompt, are computed by one worker: send this without a room"))
		return
	}
	if m := call.Model; m != "" && m != "default" && m != p.info.Model && m != p.info.Path {
		api.WriteError(w, room.Because(room.BadRequest, "model: %.80q is not served here, %q is", m, p.info.Model))
		return
	}
	if cause := p.chat.Constrain(call); cause != nil {
		api.WriteError(w, cause)
		return
	}
	watched, stop := api.Watch(r.Context(), r)
	defer stop()
	ctx, cancel, due := deadline(watched, call)
	defer cancel()
	prompts, cause := p.tokenize(ctx, call)
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	if p.prefill != nil {
		s.prefill(ctx, w, p, call, prompts[0], due)
		return
	}
	s.decode(ctx, w, p, call, prompts, due)
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

// decode serves generations, one with a hand-over or several alone.
func (s *Server) decode(ctx context.Context, w http.ResponseWriter, p *parts, call *api.Call, prompts [][]engine.Token, due time.Time) {
	req := decode.Request{Params: call.Params, Due: due, Wake: make(chan struct{}, 1), PromptLogprobs: call.PromptLogprobs, PromptFrom: call.PromptFrom}
	gone := room.ClientGone
	if leg := call.Leg; leg != nil {
		req.RID, req.Room, req.Host, req.Port = leg.RID, leg.Room, leg.BootstrapHost, leg.BootstrapPort
		gone = room.LegLost
	}
	if req.RID == "" || call.Leg == nil {
		req.RID = id.NewRID()
	}
	gens, cause := p.begin(req, call, prompts)
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	a := api.Answer{Kind: call.Kind, RID: req.RID, Model: p.info.Model, Created: time.Now().Unix()}
	newStream(p, call, prompts, gens, req.Wake, gone, api.NewResponder(w, call, a, 0)).run(ctx)
}

// begin starts call.N generations of each prompt, all or none. The choices of one
// prompt are one request; the first has the rid that was given, the others the
// rid with their number.
func (p *parts) begin(req decode.Request, call *api.Call, prompts [][]engine.Token) (gens []*decode.Generation, cause *room.Cause) {
	for i, tokens := range prompts {
		r := req
		r.Tokens, r.N = tokens, call.N
		if call.MaxTokensDefault {
			r.Params.MaxTokens = max(1, min(r.Params.MaxTokens, p.info.Cells-len(tokens)))
		}
		if i > 0 {
			r.RID += id.RID(promptMark + strconv.Itoa(i))
		}
		g, cause := p.decode.Begin(r)
		if cause != nil {
			for _, g := range gens {
				g.Abort(cause)
			}
			return nil, cause
		}
		gens = append(gens, g.Choices()...)
	}
	return gens, nil
}

// promptMark parts the rid of a request from the number of its prompt.
const promptMark = "#"

// unixNow is the date in a chat template.
func unixNow() int64 { return time.Now().Unix() }
