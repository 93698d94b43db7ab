package router

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// role is which leg a worker serves.
type role string

const (
	prefill role = "prefill"
	decode  role = "decode"
)

// worker is what the router knows about one worker. pool.mu guards it, except
// the fields that never change.
type worker struct {
	role          role
	url           string // without a slash at its end
	bootstrapHost string
	fixedPort     int
	legs          *http.Client // keep-alive connections of the legs
	aborts        *aborter

	checked  bool   // the first health check is done
	ready    bool   // ... with 200
	missed   int    // checks in a row without an answer
	reason   string // why it is not ready, for people
	status   string // the health body's status
	info     serverInfo
	rawInfo  json.RawMessage
	breaker  breaker
	inFlight int

	fence     context.Context // ends when the worker is given up
	fenceOff  context.CancelCauseFunc
	fenceDone bool
}

// serverInfo is what the router reads of a worker's /get_server_info.
type serverInfo struct {
	Role          string `json:"role"`
	BootstrapPort int    `json:"bootstrap_port"`
	Draining      bool   `json:"draining"`
	Model         string `json:"model"`
}

func newWorker(ctx context.Context, r role, w Worker, dial DialFunc) *worker {
	u, _ := url.Parse(w.URL) // Config.check has parsed it
	host := w.BootstrapHost
	if host == "" {
		host = u.Hostname()
	}
	nw := &worker{
		role: r, url: strings.TrimSuffix(w.URL, "/"), bootstrapHost: host, fixedPort: w.BootstrapPort,
		legs: &http.Client{Transport: legTransport(dial), CheckRedirect: noRedirect},
	}
	nw.fence, nw.fenceOff = context.WithCancelCause(ctx)
	return nw
}

// bootstrapPort returns where decode finds this prefill worker, 0 if unknown.
func (w *worker) bootstrapPort() int {
	if w.fixedPort != 0 {
		return w.fixedPort
	}
	return w.info.BootstrapPort
}

// unusable returns why no new room may go to the worker, "" if one may.
func (w *worker) unusable(now time.Time) string {
	switch {
	case !w.checked:
		return "not checked yet"
	case !w.ready:
		return w.reason
	case w.info.Draining:
		return "draining"
	case w.info.Role != "" && w.info.Role != string(w.role):
		return fmt.Sprintf("it is a %s worker, given as %s", w.info.Role, w.role)
	case w.role == prefill && w.bootstrapPort() == 0:
		return "its bootstrap port is neither given nor in its /get_server_info"
	case !w.breaker.allows(now):
		return fmt.Sprintf("breaker open after %d failures in a row", w.breaker.failures)
	}
	return ""
}

// answered records an answered health check.
func (w *worker) answered(ctx context.Context, code int, status string) {
	w.checked, w.missed = true, 0
	w.ready = code == http.StatusOK
	w.status = status
	w.reason = ""
	if !w.ready {
		w.reason = fmt.Sprintf("/health answered %d %s", code, status)
	}
	if w.fenceDone {
		w.fence, w.fenceOff = context.WithCancelCause(ctx)
		w.fenceDone = false
	}
}

// silent records a health check without an answer. One that was refused, rather
// than timed out, needs no second look.
func (w *worker) silent(err error, refused bool) {
	w.checked = true
	w.missed++
	if refused {
		w.missed = max(w.missed, suspectAfter)
	}
	w.reason = fmt.Sprintf("no answer to a health check: %v", err)
	if w.missed >= suspectAfter {
		w.ready, w.status = false, "unreachable"
	}
	if w.missed >= fenceAfter && !w.fenceDone {
		w.fenceDone = true
		w.fenceOff(room.Because(room.PeerGone, "%s worker %s answered no health check for %d in a row", w.role, w.url, w.missed))
	}
}
