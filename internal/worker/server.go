package worker

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/prefill"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Server is a worker's HTTP face. Until load has set what it serves it answers
// "loading".
type Server struct {
	cfg     Config
	self    id.Incarnation
	group   *svc.Group
	started time.Time
	metrics *metrics
	leave   func() // withdraws a prefill worker from its registry

	parts    atomic.Pointer[parts] // nil while loading
	leaving  atomic.Bool           // says so to whoever asks
	draining atomic.Bool           // takes nothing new
}

// parts is what exists once the engine is loaded.
type parts struct {
	engine    engine.Engine
	info      engine.Info
	selfTest  any
	arena     *kv.Arena // nil in a worker that serves alone
	chat      *chat.Renderer
	stop      string // implicit stop string of the fallback template, "" otherwise
	record    *flight.Recorder
	prefill   *prefill.Worker // role prefill
	decode    *decode.Worker  // roles decode and serve
	node      *control.Node   // nil in a worker that serves alone
	transfer  interface{ Stats() transfer.Stats }
	transport string
	bootPort  int

	tokenizing chan struct{} // places at the tokenizer
	longest    int           // bytes of one token's text, at most
}

// Handler returns the routes.
func (s *Server) Handler() http.Handler {
	mux := api.NewMux("a Tandem " + string(s.cfg.Role) + " worker. GET /get_server_info tells of it")
	for _, k := range api.Kinds() {
		mux.HandleFunc("POST "+k.Path(), s.loaded(func(w http.ResponseWriter, r *http.Request, p *parts) { s.generate(w, r, p, k) }))
	}
	mux.HandleFunc("POST /abort_request", s.loaded(s.abort))
	mux.HandleFunc("POST /tokenize", s.loaded(s.tokenizeText))
	mux.HandleFunc("POST /detokenize", s.loaded(s.detokenize))
	mux.HandleFunc("/flush_cache", s.loaded(s.flushCache))
	mux.HandleFunc("GET /get_model_info", s.loaded(s.modelInfo))
	mux.HandleFunc("GET /v1/models", s.loaded(s.models))
	mux.HandleFunc("GET /v1/models/{id...}", s.loaded(s.model))
	mux.HandleFunc("GET /get_server_info", s.loaded(s.serverInfo))
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /readyz", s.health)
	mux.HandleFunc("GET /livez", s.livez)
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.HandleFunc("GET /debug/rooms", s.loaded(s.debugRooms))
	mux.HandleFunc("GET /debug/rooms/{key}", s.loaded(s.debugRoom))
	mux.HandleFunc("GET /debug/peers", s.loaded(s.debugPeers))
	mux.HandleFunc("GET /debug/leases", s.loaded(s.debugLeases))
	mux.HandleFunc("GET /debug/loops", s.debugLoops)
	return mux
}

// loaded answers 503 until the engine is there.
func (s *Server) loaded(f func(http.ResponseWriter, *http.Request, *parts)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := s.parts.Load()
		if p == nil {
			api.WriteError(w, room.Because(room.Draining, "the worker is still loading its model"))
			return
		}
		f(w, r, p)
	}
}

// abort ends requests by their exact ids.
func (s *Server) abort(w http.ResponseWriter, r *http.Request, p *parts) {
	body, done, cause := api.AbortBodies.Read(w, r, maxAbortBody, 0)
	defer done()
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	targets, all, cause := api.ParseAbort(body)
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	if all {
		for _, v := range p.record.List(0) {
			targets = append(targets, api.AbortTarget{RID: v.RID, Room: v.Room})
		}
	}
	targets = withPrompts(targets, p)
	n := running(targets, p)
	why := room.Because(room.AbortRequest, "POST /abort_request")
	for _, t := range targets {
		if p.prefill != nil {
			p.prefill.Abort(t.RID, t.Room, why)
		} else {
			p.decode.Abort(t.RID, t.Room, why)
		}
	}
	writeJSON(w, http.StatusOK, map[string]int{"aborted": n})
}

// running counts the requests that the targets name and that have not ended.
func running(targets []api.AbortTarget, p *parts) (n int) {
	named := make(map[api.AbortTarget]bool, len(targets))
	for _, t := range targets {
		named[t] = true
	}
	for _, v := range p.record.List(0) {
		if named[api.AbortTarget{RID: v.RID}] || named[api.AbortTarget{RID: v.RID, Room: v.Room}] {
			n++
		}
	}
	return n
}

// withPrompts adds the further prompts of each request that is named by its rid.
func withPrompts(targets []api.AbortTarget, p *parts) []api.AbortTarget {
	named := make(map[id.RID]bool, len(targets))
	for _, t := range targets {
		if t.Room == 0 {
			named[t.RID] = true
		}
	}
	for _, v := range p.record.List(0) {
		if rid, _, ok := strings.Cut(string(v.RID), promptMark); ok && named[id.RID(rid)] {
			targets = append(targets, api.AbortTarget{RID: v.RID})
		}
	}
	return targets
}

// maxAbortBody holds the largest batch of aborts that ParseAbort takes.
const maxAbortBody = 4 << 20

// deadline returns when a request must have ended: what its leg says remains, or
// the default, within the cap.
func deadline(ctx context.Context, call *api.Call) (context.Context, context.CancelFunc, time.Time) {
	d := DefaultDeadline
	if call.Leg != nil && call.Leg.Remaining > 0 {
		d = min(call.Leg.Remaining, MaxDeadline)
	}
	due := time.Now().Add(d)
	ctx, cancel := context.WithDeadlineCause(ctx, due, room.Because(room.Deadline, "the request did not end within %v", d))
	return ctx, cancel, due
}
