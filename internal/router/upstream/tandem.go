package upstream

import (
	"strconv"

	"github.com/tandem-llm/tandem/internal/api"
)

// Tandem is the connector for our own workers: SGLang's contract, plus the
// request's time and what remains of its deadline.
type Tandem struct{}

// Name returns "tandem".
func (Tandem) Name() string { return "tandem" }

// Bodies returns one body for both legs.
func (Tandem) Bodies(body *Body, leg Leg) (prefill, decode Parts) {
	fields := `"bootstrap_host":` + strconv.Quote(leg.BootstrapHost) +
		`,"bootstrap_port":` + strconv.Itoa(leg.BootstrapPort) +
		`,"bootstrap_room":` + leg.Room.String() +
		`,"tandem_request_time":` + strconv.FormatInt(leg.RequestTime, 10) +
		`,"tandem_remaining_ms":` + strconv.FormatInt(max(1, leg.Remaining.Milliseconds()), 10)
	b := body.With(strconv.Quote(string(leg.RID)), fields)
	return b, b
}

// DecodeEarly is true: both legs are sent at once.
func (Tandem) DecodeEarly() bool { return true }

// Abort names the exact rids and rooms.
func (Tandem) Abort(targets []api.AbortTarget) (path string, body []byte) {
	return "/abort_request", api.AbortJSON(targets)
}

// AbortBatch is how many requests one abort may name: enough that 10,000 clients
// that vanish at once cost 40 requests, few enough that one fits a packet or two.
func (Tandem) AbortBatch() int { return 256 }
