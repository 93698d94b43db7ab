package router

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

func (r *Router) routes() *http.ServeMux {
	mux := http.NewServeMux()
	r.inference(mux)
	mux.HandleFunc("GET /livez", r.livez)
	mux.HandleFunc("GET /health", r.health)
	mux.HandleFunc("GET /readyz", r.health)
	mux.HandleFunc("GET /v1/models", r.models)
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
	URL      string `json:"url"`
	Usable   bool   `json:"usable"`
	Reason   string `json:"reason,omitempty"`
	Status   string `json:"status,omitempty"`
	InFlight int    `json:"in_flight"`
	Breaker  string `json:"breaker"`
}

func (r *Router) states() (states []workerState, pairs bool) {
	now := time.Now()
	usable := map[role]bool{}
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	for _, w := range r.pool.all() {
		why := w.unusable(now)
		usable[w.role] = usable[w.role] || why == ""
		states = append(states, workerState{w.role, w.url, why == "", why, w.status, w.inFlight, w.breaker.state(now)})
	}
	return states, usable[prefill] && usable[decode]
}

// health is 200 only if a pair is usable.
func (r *Router) health(w http.ResponseWriter, _ *http.Request) {
	states, pairs := r.states()
	if !pairs {
		reply(w, http.StatusServiceUnavailable, map[string]any{"status": "no_pair", "workers": states})
		return
	}
	reply(w, http.StatusOK, map[string]any{"status": "healthy", "workers": states})
}

// models asks a usable decode worker.
func (r *Router) models(w http.ResponseWriter, q *http.Request) {
	now := time.Now()
	r.pool.mu.Lock()
	best := r.pool.least(r.pool.decodes, now, nil)
	r.pool.mu.Unlock()
	if best == nil {
		api.WriteError(w, room.Because(room.NoPair, "no usable decode worker to ask"))
		return
	}
	code, body, err := get(q.Context(), best.legs, best.url+"/v1/models")
	if err != nil || code != http.StatusOK {
		api.WriteError(w, room.Because(room.PeerGone, "decode worker %s answered /v1/models with %d, %v", best.url, code, err))
		return
	}
	_ = api.WriteJSON(w, http.StatusOK, body)
}

// serverInfo repeats what each worker last said of itself.
func (r *Router) serverInfo(w http.ResponseWriter, _ *http.Request) {
	type worker struct {
		workerState
		Info json.RawMessage `json:"info,omitempty"`
	}
	states, _ := r.states()
	workers := make([]worker, len(states))
	r.pool.mu.Lock()
	for i, k := range r.pool.all() {
		workers[i] = worker{states[i], k.rawInfo}
	}
	r.pool.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{
		"role": "router", "connector": r.cfg.Connector.Name(), "workers": workers, "loops": r.group.Loops(), "queues": r.group.Queues()})
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

func (r *Router) room(w http.ResponseWriter, q *http.Request) {
	rec, ok := r.book.find(q.PathValue("key"))
	if !ok {
		reply(w, http.StatusNotFound, map[string]any{"error": "no such rid or room among the live requests and the last " + strconv.Itoa(r.cfg.Records) + " ended ones"})
		return
	}
	reply(w, http.StatusOK, rec)
}
