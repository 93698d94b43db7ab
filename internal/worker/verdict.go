package worker

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
)

// A library call is stuck when it has run for more than stuckFactor times what
// was expected of it, and for stuckAfter at least; until then it is busy.
const (
	stuckAfter  = 10 * time.Second
	stuckFactor = 20
)

// Verdict is what health says of this worker.
type Verdict struct {
	Status string `json:"status"` // loading, draining, healthy, busy, degraded or wedged
	Reason string `json:"reason,omitempty"`
	Role   Role   `json:"role"`
	Ready  bool   `json:"ready"` // takes new requests
	Live   bool   `json:"live"`  // not beyond help
}

// verdict reads atomics and short-held locks only: it must answer however busy
// the worker is.
func (s *Server) verdict() Verdict {
	v := Verdict{Role: s.cfg.Role, Live: true}
	p := s.parts.Load()
	if p == nil {
		v.Status, v.Reason = "loading", "the model is being loaded"
		return v
	}
	for _, l := range s.loops(p) {
		if l.Err != "" {
			v.Status, v.Reason, v.Live = "wedged", fmt.Sprintf("loop %s is dead: %s", l.Name, l.Err), false
			return v
		}
	}
	call := p.engine.Call()
	if why := stuck(call, time.Now()); why != "" {
		v.Status, v.Reason, v.Live = "wedged", why, false
		return v
	}
	if s.leaving.Load() {
		v.Status, v.Reason = "draining", "leaving service"
		return v
	}
	v.Status, v.Ready = "healthy", true
	if !call.Since.IsZero() {
		v.Status = "busy"
	}
	return v
}

func stuck(c engine.Call, now time.Time) string {
	if c.Since.IsZero() {
		return ""
	}
	limit := max(stuckAfter, stuckFactor*c.Expected)
	if in := now.Sub(c.Since); in > limit {
		return fmt.Sprintf("the engine has been in one library call of %d tokens for %v; %v were expected, %v is the limit", c.Tokens, in.Round(time.Second), c.Expected.Round(time.Millisecond), limit)
	}
	return ""
}

// health and readyz: 200 while the worker takes requests.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	v := s.verdict()
	status := http.StatusOK
	if !v.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, v)
}

// livez: 200 unless only a restart helps.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	v := s.verdict()
	status := http.StatusOK
	if !v.Live {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, v)
}
