package worker

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		api.WriteError(w, room.Because(room.Bug, "%v", err))
		return
	}
	_ = api.WriteJSON(w, status, append(b, '\n')) // whoever asked is gone: nothing to do
}

// models lists the one model in OpenAI's form.
func (s *Server) models(w http.ResponseWriter, _ *http.Request, p *parts) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{s.itself(p)}})
}

func (s *Server) itself(p *parts) map[string]any {
	return map[string]any{"id": p.info.Model, "object": "model", "created": s.started.Unix(), "owned_by": "tandem", "max_model_len": p.info.Cells}
}

// model shows the one model.
func (s *Server) model(w http.ResponseWriter, r *http.Request, p *parts) {
	if name := r.PathValue("id"); name != p.info.Model {
		api.WriteError(w, room.Because(room.ModelNotFound, "model: %.128q is not served here, but %q", name, p.info.Model))
		return
	}
	writeJSON(w, http.StatusOK, s.itself(p))
}

// serverInfo says what this worker is: the router reads role, model, ports and
// draining; people the rest.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request, p *parts) {
	held, total := p.engine.Cells()
	info := map[string]any{
		"role": s.cfg.Role, "incarnation": s.self.String(), "model": p.info.Model, "model_path": p.info.Path,
		"architecture": p.info.Arch, "build": p.info.Build, "layout": p.info.Layout.String(), "layout_words": p.info.Describe,
		"chunk": p.info.Chunk, "context": total, "kv_cells_held": held, "slots": p.info.Slots, "max_model_len": total,
		"hand_over": orOK(p.info.HandOver), "self_test": p.selfTest, "draining": s.leaving.Load(),
		"deterministic": s.cfg.Deterministic, "uptime_s": int(time.Since(s.started).Seconds()),
		"limits": s.limits(),
	}
	if p.transport != "" {
		info["transfer"] = p.transport
	}
	if s.cfg.Role == Prefill {
		info["bootstrap_port"] = p.bootPort
	}
	writeJSON(w, http.StatusOK, info)
}

func orOK(why string) string {
	if why == "" {
		return "ok"
	}
	return why
}

// debugRooms lists live requests and the newest ended ones (?n=100).
func (s *Server) debugRooms(w http.ResponseWriter, r *http.Request, p *parts) {
	n := 100
	if v, err := strconv.Atoi(r.URL.Query().Get("n")); err == nil && v >= 0 {
		n = v
	}
	states := map[string]int{}
	counts := p.roomCounts()
	for st, c := range counts {
		states[st.String()] = c
	}
	drops, tombstones := p.book()
	writeJSON(w, http.StatusOK, map[string]any{"states": states, "tombstones": tombstones, "drops": drops, "rooms": p.record.List(n)})
}

// debugRoom shows one request by its rid, as it is or as an answer's id has it, or by
// its room, with every transition.
func (s *Server) debugRoom(w http.ResponseWriter, r *http.Request, p *parts) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.PathValue("key"), "chat"), "cmpl-")
	found := p.record.Find(key)
	if len(found) == 0 {
		writeJSON(w, http.StatusNotFound, map[string]string{"error": "no request or room " + r.PathValue("key") + " is remembered here"})
		return
	}
	writeJSON(w, http.StatusOK, found)
}

func (s *Server) debugPeers(w http.ResponseWriter, _ *http.Request, p *parts) {
	if p.node == nil {
		writeJSON(w, http.StatusOK, map[string]any{"peers": []any{}})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"self": s.self.String(), "peers": p.node.Peers(), "dials": p.node.Dials(), "drops": p.node.Drops()})
}

func (s *Server) debugLeases(w http.ResponseWriter, _ *http.Request, p *parts) {
	if p.arena == nil {
		writeJSON(w, http.StatusOK, map[string]any{})
		return
	}
	writeJSON(w, http.StatusOK, p.arena.Stats())
}

func (s *Server) debugLoops(w http.ResponseWriter, _ *http.Request) {
	p := s.parts.Load()
	out := map[string]any{"loops": s.loops(p), "queues": s.group.Queues(), "tasks": s.group.Tasks(), "panics": s.group.Panics()}
	if p != nil {
		c := p.engine.Call()
		e := map[string]any{"steps": c.Steps, "load": p.engine.Load()}
		if !c.LastStep.IsZero() {
			e["last_step"] = c.LastStep
		}
		if !c.Since.IsZero() {
			e["in_call_ms"], e["in_call_tokens"], e["expected_ms"] = time.Since(c.Since).Milliseconds(), c.Tokens, c.Expected.Milliseconds()
		}
		out["engine"] = e
	}
	writeJSON(w, http.StatusOK, out)
}

// loops returns every loop of this process.
func (s *Server) loops(p *parts) []svc.LoopStatus {
	loops := s.group.Loops()
	if p != nil && p.node != nil {
		loops = append(loops, p.node.Group().Loops()...)
	}
	return loops
}

// roomCounts returns the rooms in each state.
func (p *parts) roomCounts() map[room.State]int {
	if p.prefill != nil {
		return p.prefill.Counts()
	}
	return p.decode.Counts()
}

func (p *parts) book() (drops map[string]uint64, tombstones int) {
	if p.prefill != nil {
		return p.prefill.Book()
	}
	return p.decode.Book()
}
