package upstream

import (
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
)

// Leg is what one attempt of a request adds to the client's body.
type Leg struct {
	RID           id.RID
	Room          id.Room
	BootstrapHost string
	BootstrapPort int
	RequestTime   int64         // unix s
	Remaining     time.Duration // of the request's deadline
}

// Connector is one kind of worker fleet.
type Connector interface {
	// Name is the kind as flags and metrics spell it.
	Name() string

	// Bodies returns what prefill and decode are sent for a client's body. The
	// body is not changed, and both results may share its memory and each other's.
	Bodies(body *Body, leg Leg) (prefill, decode Parts)

	// DecodeEarly says whether decode may be sent before prefill has answered.
	DecodeEarly() bool

	// Abort returns the path and the body that end these requests on a worker.
	// It gets at most AbortBatch of them.
	Abort(targets []api.AbortTarget) (path string, body []byte)
	AbortBatch() int
}
