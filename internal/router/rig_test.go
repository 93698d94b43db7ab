package router

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memNet is a network in memory: real net/http on both sides, no kernel, so
// that time is the bubble's.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	dials     map[string]int
}

type memListener struct {
	net   *memNet
	addr  string
	conns chan net.Conn
	done  chan struct{}
}

func (n *memNet) listen(addr string) *memListener {
	l := &memListener{net: n, addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	n.listeners[addr] = l
	n.mu.Unlock()
	return l
}

func (n *memNet) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.dials[addr]++
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "mem", Err: fmt.Errorf("%s: %w", addr, syscall.ECONNREFUSED)}
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
	case <-ctx.Done():
	}
	return nil, &net.OpError{Op: "dial", Net: "mem", Err: fmt.Errorf("%s: %w", addr, syscall.ECONNREFUSED)}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.net.listeners[l.addr] == l {
		delete(l.net.listeners, l.addr)
		close(l.done)
	}
	return nil
}

func (l *memListener) Addr() net.Addr { return &net.TCPAddr{} }

// fake is a worker whose leg the test writes.
type fake struct {
	addr string
	srv  *http.Server

	mu      sync.Mutex
	leg     func(w http.ResponseWriter, r *http.Request, c *api.Call) // answers a leg
	health  func(w http.ResponseWriter, r *http.Request)
	info    string
	bodies  [][]byte
	calls   []*api.Call
	aborted []api.AbortTarget
	posts   int // of /abort_request
	left    int // legs whose connection ended before the answer
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	leg, health, info := f.leg, f.health, f.info
	f.mu.Unlock()
	switch r.URL.Path {
	case "/health":
		health(w, r)
	case "/get_server_info":
		io.WriteString(w, info)
	case "/v1/models":
		io.WriteString(w, `{"data":[{"id":"m"}]}`)
	case "/abort_request":
		body, _ := io.ReadAll(r.Body)
		targets, _, cause := api.ParseAbort(body)
		if cause != nil {
			api.WriteError(w, cause)
			return
		}
		f.mu.Lock()
		f.aborted = append(f.aborted, targets...)
		f.posts++
		f.mu.Unlock()
	default:
		body, _ := io.ReadAll(r.Body)
		c, cause := api.Parse(api.Completion, body, api.Limits{})
		f.mu.Lock()
		f.bodies = append(f.bodies, body)
		if cause == nil {
			f.calls = append(f.calls, c)
		}
		f.mu.Unlock()
		if cause != nil {
			api.WriteError(w, cause)
			return
		}
		leg(w, r, c)
		if r.Context().Err() != nil {
			f.mu.Lock()
			f.left++
			f.mu.Unlock()
		}
	}
}

func (f *fake) set(leg func(w http.ResponseWriter, r *http.Request, c *api.Call)) {
	f.mu.Lock()
	f.leg = leg
	f.mu.Unlock()
}

// got returns copies of what the fake has seen.
func (f *fake) got() (calls []*api.Call, aborted []api.AbortTarget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(calls, f.calls...), append(aborted, f.aborted...)
}

// Legs that tests use.
func hang(w http.ResponseWriter, r *http.Request, c *api.Call) { <-r.Context().Done() }

func prefilled(w http.ResponseWriter, r *http.Request, c *api.Call) {
	api.WriteJSON(w, 200, api.LegDone{RID: c.Leg.RID, Room: c.Leg.Room, Outcome: "ok"}.JSON())
}

func fails(code room.Code, detail string) func(http.ResponseWriter, *http.Request, *api.Call) {
	return func(w http.ResponseWriter, r *http.Request, c *api.Call) {
		api.WriteError(w, room.Because(code, "%s", detail))
	}
}

func cut(w http.ResponseWriter, r *http.Request, c *api.Call) { panic(http.ErrAbortHandler) }

// streams answers with some words; then does what comes after.
func streams(words int, then func(*api.Responder, *http.Request)) func(http.ResponseWriter, *http.Request, *api.Call) {
	return func(w http.ResponseWriter, r *http.Request, c *api.Call) {
		resp := api.NewResponder(w, c, api.Answer{RID: legRID(c), Model: "m"}, 0)
		for i := range words {
			if resp.Text(fmt.Sprintf("w%d ", i), int32(i)) != nil {
				return
			}
		}
		then(resp, r)
	}
}

func finishes(resp *api.Responder, _ *http.Request) {
	resp.Finish(api.FinishStop, api.Usage{Prompt: 3})
}

func waits(_ *api.Responder, r *http.Request) { <-r.Context().Done() }

// rig is a router between fake workers and a client.
type rig struct {
	*Router
	t      *testing.T
	net    *memNet
	ps, ds []*fake
	client *http.Client
	srv    *http.Server
	stop   context.CancelFunc
	cut    context.CancelCauseFunc // the requests' contexts, as a drain's end does
	wg     sync.WaitGroup
}

func (g *rig) worker(addr, role string) *fake {
	f := &fake{addr: addr, info: `{"role":"` + role + `","bootstrap_port":8998,"model":"m"}`,
		health: func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"status":"healthy"}`) }}
	if f.leg = prefilled; role == "decode" {
		f.leg = streams(3, finishes)
	}
	f.start(g)
	return f
}

func (f *fake) start(g *rig) {
	ln := g.net.listen(f.addr)
	srv := api.NewServer(context.Background(), f, slog.NewLogLogger(slog.DiscardHandler, 0))
	f.srv = srv
	g.wg.Go(func() { srv.Serve(ln) })
}

func newRig(t *testing.T, prefills, decodes int, change func(*Config)) *rig {
	t.Helper()
	g := &rig{t: t, net: &memNet{listeners: map[string]*memListener{}, dials: map[string]int{}}}
	cfg := Config{Dial: g.net.dial, Log: slog.New(slog.DiscardHandler)}
	for i := range prefills {
		f := g.worker(fmt.Sprintf("p%d:80", i), "prefill")
		g.ps = append(g.ps, f)
		cfg.Prefills = append(cfg.Prefills, Worker{URL: "http://" + f.addr})
	}
	for i := range decodes {
		f := g.worker(fmt.Sprintf("d%d:80", i), "decode")
		g.ds = append(g.ds, f)
		cfg.Decodes = append(cfg.Decodes, Worker{URL: "http://" + f.addr})
	}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.Router = r
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.wg.Go(func() { r.Run(ctx) })
	ln := g.net.listen("router:80")
	base, cut := context.WithCancelCause(context.Background())
	g.cut = cut
	g.srv = api.NewServer(base, r.Handler(), slog.NewLogLogger(slog.DiscardHandler, 0))
	g.wg.Go(func() { g.srv.Serve(ln) })
	g.client = &http.Client{Transport: &http.Transport{DialContext: g.net.dial, DisableKeepAlives: true}}
	synctest.Wait() // the first health checks are answered
	return g
}

// close ends everything, after checking what every test wants at its end: one
// outcome per record, nothing in flight, no abort left.
func (g *rig) close() {
	time.Sleep(3 * time.Second) // the bubble's time: trailing legs end
	synctest.Wait()
	running, ended := g.book.list(1 << 20)
	if len(running) > 0 {
		g.t.Errorf("%d records are live at the end: %+v", len(running), running[0])
	}
	for _, r := range ended {
		if r.Outcome == "" || r.Who == "" {
			g.t.Errorf("a record without an outcome: %+v", r)
		}
	}
	for _, w := range g.pool.all() {
		if n := g.pool.load(w); n != 0 {
			g.t.Errorf("%s: %d in flight at the end", w.url, n)
		}
		if s := w.aborts.state(); s.Len != 0 {
			g.t.Errorf("%s: %d aborts queued at the end", w.url, s.Len)
		}
	}
	for name, n := range g.group.Tasks() {
		if n != 0 {
			g.t.Errorf("%d tasks %q at the end", n, name)
		}
	}
	g.srv.Close()
	g.stop()
	for _, f := range append(g.ps, g.ds...) {
		f.srv.Close()
	}
	g.wg.Wait()
}

func inBubble(t *testing.T, prefills, decodes int, change func(*Config), test func(t *testing.T, g *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, prefills, decodes, change)
		defer g.close()
		test(t, g)
	})
}

const streamBody = `{"prompt":"hello","max_tokens":4,"stream":true}`
const wholeBody = `{"prompt":"hello","max_tokens":4}`

// answer is one whole answer as the client saw it.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
	took   time.Duration
}

func (g *rig) post(body string, headers ...string) answer {
	began := time.Now()
	req, _ := http.NewRequest("POST", "http://router:80/v1/completions", strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), err, time.Since(began)}
}

func (a answer) code() string {
	var e struct{ Error struct{ Code string } }
	json.Unmarshal([]byte(a.body), &e)
	return e.Error.Code
}

// raw opens a connection and sends a request on it; the caller reads or closes.
func (g *rig) raw(body string) (net.Conn, *bufio.Reader) {
	c, err := g.net.dial(context.Background(), "", "router:80")
	if err != nil {
		g.t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/completions HTTP/1.1\r\nHost: router\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if _, err := c.Write(b.Bytes()); err != nil {
		g.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// last returns the newest ended record.
func (g *rig) last() Record {
	g.t.Helper()
	_, ended := g.book.list(1)
	if len(ended) == 0 {
		g.t.Fatal("no record has ended")
	}
	return ended[0]
}

func (g *rig) wantEnd(outcome string, code room.Code, who string) Record {
	g.t.Helper()
	r := g.last()
	if r.Outcome != outcome || r.Code != string(code) || r.Who != who {
		g.t.Errorf("the record ended %s %s by %s (%s), want %s %s by %s", r.Outcome, r.Code, r.Who, r.Detail, outcome, code, who)
	}
	return r
}

// wantAborted checks that a fake was told to abort exactly this attempt.
func (g *rig) wantAborted(f *fake, rid id.RID, rm id.Room) {
	g.t.Helper()
	if _, aborted := f.got(); len(aborted) != 1 || aborted[0] != (api.AbortTarget{RID: rid, Room: rm}) {
		g.t.Errorf("%s was told to abort %v, want %s in %s", f.addr, aborted, rid, rm)
	}
}

// wantBreakers checks that no worker was charged.
func (g *rig) wantUncharged() {
	g.t.Helper()
	for _, w := range g.pool.all() {
		g.pool.mu.Lock()
		if w.breaker.failures != 0 || w.breaker.pause != 0 {
			g.t.Errorf("%s was charged: %+v", w.url, w.breaker)
		}
		g.pool.mu.Unlock()
	}
}

// legRID returns the rid that the router gave a leg, "" for a call without one.
func legRID(c *api.Call) id.RID {
	if c.Leg == nil {
		return ""
	}
	return c.Leg.RID
}
