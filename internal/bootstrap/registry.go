package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits of the registry.
const (
	// maxBody of a request or an answer; a registration has 600 bytes.
	maxBody = 64 << 10
	// maxRooms remembered for /query_dp_ranks; beyond it half of them go.
	maxRooms = 1 << 16
	// roomMemory is how long a room's rank is remembered, as in SGLang.
	roomMemory = 120 * time.Second
)

// Registry tells where the ranks of one prefill worker take sessions.
type Registry struct {
	mu        sync.Mutex
	topo      topology
	ranks     map[rank]rankAnswer
	pinned    map[rank]bool // registered by this process
	rooms     map[int64]roomRank
	swept     time.Time
	withdrawn bool
}

type roomRank struct {
	rank int
	at   time.Time
}

// NewRegistry returns a registry without ranks: it answers 503 until they come.
func NewRegistry() *Registry {
	return &Registry{ranks: map[rank]rankAnswer{}, pinned: map[rank]bool{}, rooms: map[int64]roomRank{}}
}

// ErrWithdrawn answers a registration after Withdraw.
var ErrWithdrawn = errors.New("this worker is leaving service")

// ErrPinned answers a stranger's registration of a rank that lives in the
// registry's own process: it would send decode workers to him.
var ErrPinned = errors.New("this rank registered itself in this process and cannot be replaced from outside")

// Register adds a rank of this process. From then on PUT /route cannot replace it.
func (r *Registry) Register(reg Registration) error { return r.register(reg, true) }

// register adds a rank, or replaces it: a rank that registers twice is there
// once. Ranks must agree on the topology: a difference is refused here, where it
// can be seen, and not when bytes are to move.
func (r *Registry) register(reg Registration, own bool) error {
	topo, at, err := reg.place()
	if err != nil {
		return err
	}
	a := rankAnswer{RankIP: reg.RankIP, RankPort: reg.RankPort, Incarnation: reg.Incarnation, ControlAddr: reg.ControlAddr}
	if _, err := a.control("localhost"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdrawn {
		return ErrWithdrawn
	}
	if r.pinned[at] && !own {
		return ErrPinned
	}
	_, again := r.ranks[at]
	if alone := again && len(r.ranks) == 1; len(r.ranks) == 0 || alone {
		r.topo = topo
	}
	if topo != r.topo {
		return fmt.Errorf("topology %+v differs from the one registered before, %+v", topo, r.topo)
	}
	r.ranks[at] = a
	if own {
		r.pinned[at] = true
	}
	return nil
}

// Withdraw makes the registry answer 503 from now on: the first step of a
// drain. /health stays 200, because decode workers take its failure as the
// death of this worker and would fail the rooms that are to be finished.
func (r *Registry) Withdraw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdrawn = true
}

// ServeHTTP answers /health, /route, /register_dp_rank and /query_dp_ranks.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/health":
		if allow(w, req, http.MethodGet, http.MethodHead) {
			io.WriteString(w, "OK")
		}
	case "/route":
		switch {
		case !allow(w, req, http.MethodGet, http.MethodPut):
		case req.Method == http.MethodPut:
			r.put(w, req)
		default:
			r.get(w, req)
		}
	case "/register_dp_rank":
		if allow(w, req, http.MethodPost) {
			r.registerRoom(w, req)
		}
	case "/query_dp_ranks":
		if allow(w, req, http.MethodPost) {
			r.queryRooms(w, req)
		}
	default:
		http.NotFound(w, req)
	}
}

func allow(w http.ResponseWriter, req *http.Request, methods ...string) bool {
	for _, m := range methods {
		if req.Method == m {
			return true
		}
	}
	http.Error(w, "method not allowed: "+req.Method, http.StatusMethodNotAllowed)
	return false
}

// body reads a bounded JSON body; on false it has answered.
func body(w http.ResponseWriter, req *http.Request, v any) bool {
	b, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		http.Error(w, fmt.Sprintf("body longer than %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return false
	case err == nil:
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		http.Error(w, "bad body: "+err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // an error means that the client is gone
}

func (r *Registry) put(w http.ResponseWriter, req *http.Request) {
	var reg Registration
	if !body(w, req, &reg) {
		return
	}
	switch err := r.register(reg, false); {
	case errors.Is(err, ErrPinned):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, ErrWithdrawn):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		io.WriteString(w, "OK")
	}
}

func (r *Registry) get(w http.ResponseWriter, req *http.Request) {
	var at [4]int
	q := req.URL.Query()
	for i, name := range [...]string{"prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank"} {
		v, err := strconv.Atoi(q.Get(name))
		if err != nil {
			http.Error(w, fmt.Sprintf("parameter %s is %q, want a number", name, q.Get(name)), http.StatusBadRequest)
			return
		}
		at[i] = v
	}
	r.mu.Lock()
	topo, have := r.topo, len(r.ranks)
	withdrawn := r.withdrawn
	a, known := r.ranks[rank{dp: at[0], cp: at[1], tp: at[2], pp: at[3]}]
	r.mu.Unlock()
	switch {
	case withdrawn:
		http.Error(w, ErrWithdrawn.Error(), http.StatusServiceUnavailable)
	case have == 0 || have < topo.ranks():
		http.Error(w, fmt.Sprintf("%d of %d ranks registered", have, topo.ranks()), http.StatusServiceUnavailable)
	case at == [4]int{-1, -1, -1, -1}:
		reply(w, topo.answer())
	case !known:
		http.Error(w, fmt.Sprintf("no rank dp %d, cp %d, tp %d, pp %d", at[0], at[1], at[2], at[3]), http.StatusNotFound)
	default:
		reply(w, a)
	}
}

func (r *Registry) registerRoom(w http.ResponseWriter, req *http.Request) {
	var in struct {
		Room *int64 `json:"bootstrap_room"`
		Rank *int   `json:"dp_rank"`
	}
	if !body(w, req, &in) {
		return
	}
	if in.Room == nil || in.Rank == nil {
		http.Error(w, "bootstrap_room and dp_rank are needed", http.StatusBadRequest)
		return
	}
	now := time.Now()
	r.mu.Lock()
	r.sweep(now)
	r.rooms[*in.Room] = roomRank{rank: *in.Rank, at: now}
	r.mu.Unlock()
	io.WriteString(w, "OK")
}

// sweep forgets old rooms: once in a while, and when there are too many.
func (r *Registry) sweep(now time.Time) {
	full := len(r.rooms) >= maxRooms
	if !full && now.Sub(r.swept) < roomMemory/4 {
		return
	}
	r.swept = now
	for room, e := range r.rooms {
		if now.Sub(e.at) > roomMemory {
			delete(r.rooms, room)
		}
	}
	if len(r.rooms) < maxRooms {
		return
	}
	for room := range r.rooms { // a flood: some go, and their askers fall back on a timeout
		if len(r.rooms) <= maxRooms/2 {
			break
		}
		delete(r.rooms, room)
	}
}

func (r *Registry) queryRooms(w http.ResponseWriter, req *http.Request) {
	var in struct {
		Rooms []int64 `json:"bootstrap_rooms"`
	}
	if !body(w, req, &in) {
		return
	}
	out := map[string]int{}
	now := time.Now()
	r.mu.Lock()
	for _, room := range in.Rooms {
		if e, ok := r.rooms[room]; ok && now.Sub(e.at) <= roomMemory {
			out[strconv.FormatInt(room, 10)] = e.rank
		}
	}
	r.mu.Unlock()
	reply(w, out)
}
