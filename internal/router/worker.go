package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
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
	name          string // "decode 0": what clients are told, who need no addresses
	url           string // without a slash at its end
	bootstrapHost string
	fixedPort     int
	legs          *http.Client // keep-alive connections of the legs
	aborts        *aborter

	checked  bool      // the first health check is done
	ready    bool      // ... with 200
	missed   int       // checks in a row without an answer
	reason   reason    // why it is not ready, for people
	refused  time.Time // when a connection to it was last refused
	status   string    // the health body's status
	info     serverInfo
	rawInfo  json.RawMessage
	breaker  breaker
	inFlight int

	heard atomic.Pointer[time.Time] // when a leg last had bytes from it; read without the lock

	fence     context.Context // ends when the worker is given up
	fenceOff  context.CancelCauseFunc
	fenceDone bool
}

// serverInfo is what the router reads of a worker's /get_server_info.
type serverInfo struct {
	Incarnation   string `json:"incarnation"`
	Role          string `json:"role"`
	BootstrapPort int    `json:"bootstrap_port"`
	Draining      bool   `json:"draining"`
	Model         string `json:"model"`
	MaxModelLen   int    `json:"max_model_len"`
	Layout        string `json:"layout"`       // two workers can hand KV over only if theirs are equal
	LayoutWords   string `json:"layout_words"` // the same for people
	Chunk         int    `json:"chunk"`
}

// reason is why a worker or a pair is not used: what clients are told, and what is
// for /health and the log alone, as it may name addresses.
type reason struct{ text, detail string }

func (r reason) String() string {
	if r.detail == "" {
		return r.text
	}
	return r.text + ": " + r.detail
}

func newWorker(ctx context.Context, r role, i int, w Worker, dial DialFunc) *worker {
	u, _ := url.Parse(w.URL) // Config.check has parsed it
	host := w.BootstrapHost
	if host == "" {
		host = u.Hostname()
	}
	nw := &worker{
		role: r, name: fmt.Sprintf("%s %d", r, i), url: strings.TrimSuffix(w.URL, "/"), bootstrapHost: host, fixedPort: w.BootstrapPort,
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

// unusable returns why no new room may go to the worker, nothing if one may.
func (w *worker) unusable(now time.Time) reason {
	switch {
	case !w.checked:
		return reason{text: "not checked yet"}
	case !w.ready:
		return w.reason
	case w.info.Draining:
		return reason{text: "draining"}
	case w.info.Role != "" && w.info.Role != string(w.role):
		return reason{text: fmt.Sprintf("it is a %s worker, given as %s", w.info.Role, w.role)}
	case w.role == prefill && w.bootstrapPort() == 0:
		return reason{text: "its bootstrap port is neither given nor in its /get_server_info"}
	case !w.breaker.allows(now):
		return w.breaker.why()
	}
	return reason{}
}

// usable says that a new room may go to the worker.
func (w *worker) usable(now time.Time) bool { return w.unusable(now) == reason{} }

// hear notes that bytes came from the worker: it lives, however late its health
// check may be.
func (w *worker) hear() {
	now := time.Now()
	w.heard.Store(&now)
}

// heardLately says whether a leg had bytes from the worker within a health
// check's time.
func (w *worker) heardLately() bool {
	at := w.heard.Load()
	return at != nil && time.Since(*at) < healthTimeout
}

// learn takes what a worker says of itself. Another incarnation is another
// process: what the one before failed is not its fault.
func (w *worker) learn(info serverInfo, raw json.RawMessage) (restarted bool) {
	restarted = w.info.Incarnation != "" && info.Incarnation != w.info.Incarnation
	if restarted {
		w.breaker.renew()
	}
	w.info, w.rawInfo = info, raw
	return restarted
}

// answered records an answered health check.
func (w *worker) answered(ctx context.Context, code int, status string) {
	w.checked, w.missed = true, 0
	w.ready = code == http.StatusOK
	w.status = status
	w.reason = reason{}
	if !w.ready {
		w.reason.text = strings.TrimSpace(fmt.Sprintf("/health answered %d %s", code, status))
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
	w.reason = reason{"no answer to a health check", err.Error()}
	if refused {
		w.reason.text = "it could not be reached"
	}
	if w.missed >= suspectAfter {
		w.ready, w.status = false, "unreachable"
	}
	if w.missed >= fenceAfter && !w.fenceDone {
		w.fenceDone = true
		w.fenceOff(room.Because(room.PeerGone, "the %s worker answered no health check, %d in a row", w.role, w.missed))
	}
}

// unreachable records that nobody listens at the worker's address: it is out of
// rotation until a health check that began later is answered.
func (w *worker) unreachable(err error, now time.Time) {
	w.refused = now
	w.checked, w.ready, w.status = true, false, "unreachable"
	w.reason = reason{"it could not be reached", err.Error()}
	w.missed = max(w.missed, suspectAfter)
}

// refusedBy says whether an error means that nothing listens where a worker should
// be, rather than that this process, or the network for a moment, failed.
func refusedBy(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EHOSTUNREACH)
}
