package router

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

func (r *Router) routes() *api.Mux {
	mux := api.NewMux("a Tandem router: it pairs prefill and decode workers behind one API. GET /health tells of the workers")
	r.inference(mux)
	mux.HandleFunc("GET /livez", r.livez)
	mux.HandleFunc("GET /health", r.health)
	mux.HandleFunc("GET /readyz", r.health)
	mux.HandleFunc("POST /abort_request", r.abort)
	mux.HandleFunc("GET /v1/models", r.models)
	mux.HandleFunc("GET /v1/models/{id...}", r.model)
	mux.HandleFunc("GET /get_server_info", r.serverInfo)
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 5 * time.Second}))
	mux.HandleFunc("GET /debug/rooms", r.rooms)
	mux.HandleFunc("GET /debug/rooms/{key}", r.room)
	return mux
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		api.WriteError(w, room.Because(room.Bug, "%v", err))
		return
	}
	_ = api.WriteJSON(w, status, body) // a reader that left needs no answer
}

// livez says that the router's loops go round. It asks nobody.
func (r *Router) livez(w http.ResponseWriter, _ *http.Request) {
	status, dead := http.StatusOK, []string{}
	for _, l := range r.group.Loops() {
		if l.Err != "" {
			status, dead = http.StatusServiceUnavailable, append(dead, l.Name+": "+l.Err)
		}
	}
	reply(w, status, map[string]any{"alive": status == http.StatusOK, "dead_loops": dead})
}

// workerState is one worker as /health shows it.
type workerState struct {
	Role     role   `json:"role"`
	Name     string `json:"name"` // as errors to clients call it
	URL      string `json:"url"`
	Usable   bool   `json:"usable"`
	Reason   string `json:"reason,omitempty"`
	Status   string `json:"status,omitempty"`
	InFlight int    `json:"in_flight"`
	Breaker  string `json:"breaker"`
}

// states returns every worker, how many pairs are usable, and the pairs of usable
// workers that are not.
func (r *Router) states() (states []workerState, pairs int, apart []pairState) {
	now := time.Now()
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	for _, w := range r.pool.all() {
		why := w.unusable(now)
		states = append(states, workerState{w.role, w.name, w.url, w.usable(now), why.String(), w.status, w.inFlight, w.breaker.state(now)})
	}
	apart = []pairState{} // a list in JSON, also when empty
	for _, x := range r.pool.apart(now) {
		apart = append(apart, pairState{x.prefill.url, x.decode.url, r.pool.unusable(x, now).String()})
	}
	return states, r.pool.usablePairs(now), apart
}

// health is 200 only if a pair is usable.
func (r *Router) health(w http.ResponseWriter, _ *http.Request) {
	states, pairs, apart := r.states()
	status, word := http.StatusOK, "healthy"
	if pairs == 0 {
		status, word = http.StatusServiceUnavailable, "no_pair"
	}
	reply(w, status, map[string]any{"status": word, "usable_pairs": pairs, "unusable_pairs": apart, "workers": states})
}

// models lists what the decode workers serve, in OpenAI's form.
func (r *Router) models(w http.ResponseWriter, _ *http.Request) {
	served, _ := r.pool.models()
	if len(served) == 0 {
		api.WriteError(w, room.Because(room.NoPair, "no decode worker has told its model yet"))
		return
	}
	data := make([]any, len(served))
	for i, s := range served {
		data[i] = r.modelOf(s)
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (r *Router) modelOf(s serverInfo) map[string]any {
	m := map[string]any{"id": s.Model, "object": "model", "created": r.started.Unix(), "owned_by": "tandem"}
	if s.MaxModelLen > 0 {
		m["max_model_len"] = s.MaxModelLen
	}
	return m
}

// model shows one model.
func (r *Router) model(w http.ResponseWriter, q *http.Request) {
	name := q.PathValue("id")
	served, _ := r.pool.models()
	for _, s := range served {
		if s.Model == name {
			reply(w, http.StatusOK, r.modelOf(s))
			return
		}
	}
	api.WriteError(w, room.Because(room.ModelNotFound, "model: %q is not served here", shortened(name)))
}

// abort ends live requests by our rid, as X-Tandem-Rid or an answer's id has it, or
// by the client's own, and answers how many it ended: requests that came to another
// end first do not count.
func (r *Router) abort(w http.ResponseWriter, q *http.Request) {
	body, done, cause := api.AbortBodies.Read(w, q, maxAbortBody, 0)
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
	keys := make(map[string]id.Room, len(targets))
	for _, t := range targets {
		keys[string(t.RID)] = t.Room
	}
	lives := r.book.matching(func(rec *Record) bool { return all || named(rec, keys) })
	for _, l := range lives {
		l.cancel(room.Because(room.AbortRequest, "POST /abort_request"))
	}
	n := 0
	patience, cancel := context.WithTimeout(q.Context(), abortTimeout)
	defer cancel()
	for _, l := range lives {
		select {
		case <-l.over:
		case <-patience.Done(): // it will end so as soon as its upload does
		}
		if r := l.snapshot(); r.Outcome == "" || r.Code == string(room.AbortRequest) {
			n++
		}
	}
	reply(w, http.StatusOK, map[string]int{"aborted": n})
}

// named says whether one of the keys names the record; a room given with it must be
// that of one of its attempts.
func named(rec *Record, keys map[string]id.Room) bool {
	for _, key := range []string{rec.Label, string(rec.RID), "chatcmpl-" + string(rec.RID), "cmpl-" + string(rec.RID)} {
		rm, ok := keys[key]
		if ok && key != "" && (rm == 0 || slices.ContainsFunc(rec.Attempts, func(a *Attempt) bool { return a.Room == rm })) {
			return true
		}
	}
	return false
}

// serverInfo repeats what each worker last said of itself.
func (r *Router) serverInfo(w http.ResponseWriter, _ *http.Request) {
	type worker struct {
		workerState
		Info json.RawMessage `json:"info,omitempty"`
	}
	states, _, _ := r.states()
	workers := make([]worker, len(states))
	r.pool.mu.Lock()
	for i, k := range r.pool.all() {
		workers[i] = worker{states[i], k.rawInfo}
	}
	r.pool.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{
		"role": "router", "connector": r.cfg.Connector.Name(), "workers": workers, "loops": r.group.Loops(), "queues": r.group.Queues(), "limits": r.cfg.limits()})
}

// rooms lists live requests and the last ended ones.
func (r *Router) rooms(w http.ResponseWriter, q *http.Request) {
	most := 200 // as many as a person looks through
	if s := q.URL.Query().Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			api.WriteError(w, room.Because(room.BadRequest, "limit: %.40q is not a number above 0", s))
			return
		}
		most = n
	}
	running, ended := r.book.list(most)
	reply(w, http.StatusOK, map[string]any{"live": running, "ended": ended})
}

// room shows a request by rid, by an answer's id, by room, or by the client's own
// rid; a list if several have it.
func (r *Router) room(w http.ResponseWriter, q *http.Request) {
	switch found := r.book.find(q.PathValue("key")); len(found) {
	case 0:
		reply(w, http.StatusNotFound, map[string]any{"error": "no such rid or room among the live requests and the last " + strconv.Itoa(r.cfg.Records) + " ended ones"})
	case 1:
		reply(w, http.StatusOK, found[0])
	default:
		reply(w, http.StatusOK, found)
	}
}
