package router

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/router/upstream"
)

// Defaults of Config.
const (
	DefaultDeadline       = 300 * time.Second      // one request, end to end: as long as SGLang waits
	DefaultMaxDeadline    = 3600 * time.Second     // the most a client may ask for
	DefaultAttempts       = 2                      // one retry: more multiplies a storm
	DefaultHealthInterval = time.Second            // so that a dead worker is suspect within 3 s
	DefaultAckWait        = 500 * time.Millisecond // how long a retry waits for the abort of what it replaces
	DefaultMaxInFlight    = 20_000                 // requests at once: twice the 10,000 of the promise
	DefaultRecords        = 4096                   // ended requests kept for /debug/rooms, about 1 KiB each
)

// Other limits.
const (
	healthTimeout   = time.Second            // of one health check
	ownLag          = 500 * time.Millisecond // a check that took so much longer than its timeout says that this process was starved
	suspectAfter    = 2                      // failed checks in a row until no new rooms: within 3 s
	fenceAfter      = 4                      // failed checks in a row until a worker's requests end: within 5 s
	dialTimeout     = 2 * time.Second        // a worker is near or dead
	maxError        = 64 << 10               // bytes read of a worker's error answer
	maxWhole        = 64 << 20               // bytes of an answer that is not a stream
	maxInfo         = 1 << 20                // bytes of a worker's info
	errorBodyWait   = 2 * time.Second        // for the body of a worker's error answer
	prefillGrace    = 2 * time.Second        // prefill's answer may trail decode's end by this much
	abortTimeout    = 2 * time.Second        // of one POST /abort_request
	abortTries      = 3                      // then the worker is left to notice by itself
	abortPause      = 100 * time.Millisecond // between tries
	abortGather     = 5 * time.Millisecond   // between batches that were not full, so that the next is fuller
	maxAborts       = 65_536                 // waiting for one worker; the oldest is dropped
	maxAbortBody    = 4 << 20                // of POST /abort_request: the largest batch that ParseAbort takes
	lateWrite       = 500 * time.Millisecond // a write may outlast the deadline by this much
	breakerFailures = 5                      // in a row open a breaker
	breakerFirst    = 5 * time.Second        // its first pause
	breakerMost     = 60 * time.Second       // its longest; failures older than this are forgotten
	pairFailures    = 3                      // in a row open a pair's breaker: before its workers' open, which serve others
	hurry           = 500 * time.Millisecond // of a deadline: a wait that had no more time says nothing about a worker
	maxReasons      = 8                      // workers and pairs that an error to a client names
)

// Worker is one worker's address.
type Worker struct {
	URL string // e.g. "http://10.0.0.1:30000"

	// Where decode finds this prefill worker. Host defaults to the URL's; port 0
	// means to ask the worker's /get_server_info.
	BootstrapHost string
	BootstrapPort int
}

// Config says what a Router is to do. Zero fields mean the defaults.
type Config struct {
	Prefills []Worker
	Decodes  []Worker

	Connector       upstream.Connector // how workers are spoken to; Tandem
	DefaultDeadline time.Duration      // of a request without X-Tandem-Timeout-Ms; DefaultDeadline
	MaxDeadline     time.Duration      // cap of X-Tandem-Timeout-Ms; DefaultMaxDeadline
	MaxBody         int64              // bytes of a request's body; api.DefaultMaxBody
	Bodies          *api.BodyBudget    // bytes of all bodies in flight; api.Bodies, the process's
	BodyTimeout     time.Duration      // for a body to arrive; api.DefaultBodyTimeout
	WriteTimeout    time.Duration      // of one write to a client; api.WriteTimeout
	Heartbeat       time.Duration      // longest silence on a stream; api.Heartbeat
	Attempts        int                // per request, the first included; DefaultAttempts
	AckWait         time.Duration      // DefaultAckWait
	HealthInterval  time.Duration      // between checks of one worker; DefaultHealthInterval
	MaxInFlight     int                // requests at once; DefaultMaxInFlight
	Records         int                // ended requests kept; DefaultRecords
	AccessLog       string             // file that gets the record of every ended request, a JSON document a line; none
	AccessLogBytes  int64              // when that file becomes AccessLog.1 and a new one begins; DefaultAccessLogBytes
	AnyModel        bool               // take any model's name; otherwise one that no worker serves is refused
	Dial            DialFunc           // how workers are reached; TCP
	Log             *slog.Logger       // slog.Default
}

func (c Config) withDefaults() Config {
	if c.Connector == nil {
		c.Connector = upstream.Tandem{}
	}
	c.DefaultDeadline = cmp.Or(c.DefaultDeadline, DefaultDeadline)
	c.MaxDeadline = cmp.Or(c.MaxDeadline, DefaultMaxDeadline)
	c.MaxBody = cmp.Or(c.MaxBody, api.DefaultMaxBody)
	c.Bodies = cmp.Or(c.Bodies, api.Bodies)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, api.DefaultBodyTimeout)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, api.WriteTimeout)
	c.Heartbeat = cmp.Or(c.Heartbeat, api.Heartbeat)
	c.Attempts = cmp.Or(c.Attempts, DefaultAttempts)
	c.AckWait = cmp.Or(c.AckWait, DefaultAckWait)
	c.HealthInterval = cmp.Or(c.HealthInterval, DefaultHealthInterval)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.Records = cmp.Or(c.Records, DefaultRecords)
	c.AccessLogBytes = cmp.Or(c.AccessLogBytes, DefaultAccessLogBytes)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Dial == nil {
		c.Dial = dialTCP
	}
	return c
}

// check complains about what no default mends.
func (c Config) check() error {
	if len(c.Prefills) == 0 || len(c.Decodes) == 0 {
		return fmt.Errorf("%d prefill and %d decode workers given: at least one of each is needed", len(c.Prefills), len(c.Decodes))
	}
	seen := map[string]bool{}
	for _, w := range append(append([]Worker(nil), c.Prefills...), c.Decodes...) {
		u, err := url.Parse(w.URL)
		if err != nil {
			return fmt.Errorf("worker %q: %w", w.URL, err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Path != "" && u.Path != "/" {
			return fmt.Errorf("worker %q: want a URL like http://10.0.0.1:30000", w.URL)
		}
		if seen[u.Host] {
			return fmt.Errorf("worker %q is given twice", w.URL)
		}
		seen[u.Host] = true
		if w.BootstrapPort < 0 || w.BootstrapPort > 65535 {
			return fmt.Errorf("worker %q: bootstrap port %d is not in 0 to 65535", w.URL, w.BootstrapPort)
		}
	}
	return nil
}
