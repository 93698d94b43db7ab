package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/svc"
)

// Limits of the client.
const (
	// DefaultTimeout of one lookup: SGLang's.
	DefaultTimeout = 5 * time.Second
	// failureMemory keeps a flood of requests from asking a dead registry each;
	// short, because failure marks must expire before anybody waits for it.
	failureMemory = 250 * time.Millisecond
	// maxFlights lookups at one time, and maxCached addresses remembered: far
	// above any fleet.
	maxFlights = 256
	maxCached  = 4096
)

// ErrBusy says that too many lookups run already.
var ErrBusy = errors.New("too many bootstrap lookups at once")

// Answer is what a registry says of one prefill rank. It is comparable, and an
// answer that was fetched later never equals an earlier one.
type Answer struct {
	ControlAddr string         // where the rank takes sessions
	Incarnation id.Incarnation // 0 from a registry that is not ours
	fetch       uint64
}

// ClientConfig makes a Client.
type ClientConfig struct {
	// Timeout of one lookup. 0 means DefaultTimeout.
	Timeout time.Duration
	// Log is the logger; nil means slog.Default.
	Log *slog.Logger
	// DialContext opens a connection; nil means TCP.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client looks prefill workers up. The caller owes Close.
type Client struct {
	cfg  ClientConfig
	http *http.Client
	g    *svc.Group

	mu      sync.Mutex
	cached  map[string]Answer
	failed  map[string]failure
	flights map[string]*flight
	fetches uint64
	closed  bool
}

type failure struct {
	err error
	at  time.Time
}

type flight struct {
	done chan struct{}
	a    Answer
	err  error
}

// NewClient returns a client with an empty cache.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.DialContext == nil {
		cfg.DialContext = (&net.Dialer{}).DialContext
	}
	return &Client{
		cfg: cfg,
		http: &http.Client{
			// A fresh connection each time: a kept one may lead to a worker that
			// was replaced behind its address.
			Transport: &http.Transport{DialContext: cfg.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
		g:       svc.New(context.Background(), "bootstrap", cfg.Log),
		cached:  map[string]Answer{},
		failed:  map[string]failure{},
		flights: map[string]*flight{},
	}
}

// Close ends running lookups and joins them.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.g.Stop(nil)
	c.g.Wait()
}

// Lookup returns where the prefill worker behind a bootstrap address takes
// sessions: from the cache, or by asking once, however many ask at a time. It
// returns when ctx ends or the lookup's timeout has passed.
func (c *Client) Lookup(ctx context.Context, hostport string) (Answer, error) {
	c.mu.Lock()
	if a, ok := c.cached[hostport]; ok {
		c.mu.Unlock()
		return a, nil
	}
	if f, ok := c.failed[hostport]; ok && time.Since(f.at) < failureMemory {
		c.mu.Unlock()
		return Answer{}, f.err
	}
	f := c.flights[hostport]
	if f == nil {
		if c.closed || len(c.flights) >= maxFlights {
			c.mu.Unlock()
			return Answer{}, fmt.Errorf("bootstrap %s: %w", hostport, ErrBusy)
		}
		f = &flight{done: make(chan struct{}), err: errors.New("bootstrap lookup panicked")}
		c.flights[hostport] = f
		c.g.Task("lookup", func(ctx context.Context) { c.fly(ctx, hostport, f) })
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.a, f.err
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("bootstrap %s: %w", hostport, context.Cause(ctx))
	}
}

// Drop forgets an answer that turned out wrong. A newer one, that somebody
// fetched meanwhile, stays: one failure must not throw away its own cure.
func (c *Client) Drop(hostport string, a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cached[hostport] == a {
		delete(c.cached, hostport)
	}
}

func (c *Client) fly(ctx context.Context, hostport string, f *flight) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.flights, hostport)
		if len(c.cached) >= maxCached {
			clear(c.cached)
		}
		if len(c.failed) >= maxCached {
			clear(c.failed)
		}
		if f.err != nil {
			c.failed[hostport] = failure{err: f.err, at: time.Now()}
		} else {
			c.fetches++
			f.a.fetch = c.fetches
			c.cached[hostport] = f.a
			delete(c.failed, hostport)
		}
		close(f.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	f.a, f.err = c.fetch(ctx, hostport)
	if f.err != nil {
		f.err = fmt.Errorf("bootstrap %s: %w", hostport, f.err)
	}
}

// routeOfRankZero asks for the only rank an engine of ours has.
const routeOfRankZero = "prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"

func (c *Client) fetch(ctx context.Context, hostport string) (Answer, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return Answer{}, err
	}
	u := url.URL{Scheme: "http", Host: hostport, Path: "/route", RawQuery: routeOfRankZero}
	b, err := c.do(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(b, host)
}

// parseAnswer reads what a registry on host said.
func parseAnswer(b []byte, host string) (Answer, error) {
	var a rankAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return Answer{}, fmt.Errorf("the answer is not a rank: %w", err)
	}
	addr, err := a.control(host)
	return Answer{ControlAddr: addr, Incarnation: id.Incarnation(a.Incarnation)}, err
}

// Register puts a rank into another worker's registry, as the ranks of one
// tensor-parallel worker do. It asks once.
func (c *Client) Register(ctx context.Context, hostport string, reg Registration) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	b, err := json.Marshal(reg)
	if err != nil {
		return err
	}
	u := url.URL{Scheme: "http", Host: hostport, Path: "/route"}
	if _, err = c.do(ctx, http.MethodPut, u.String(), b); err != nil {
		return fmt.Errorf("bootstrap %s: %w", hostport, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, u string, in []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(b[:min(len(b), 300)]))
	}
	return b, nil
}
