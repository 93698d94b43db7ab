package bounds

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/router"
	"github.com/tandem-llm/tandem/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Ports of every worker, so that a route names one plane.
const (
	httpPort  = 80
	bootPort  = 8998
	ctlPort   = 8999
	dataPort  = 9000
	routerIP  = "127.0.0.1"
	clientIP  = "127.0.0.2"
	adminIP   = "127.0.0.3" // who reads gauges; no fault is ever put on its routes
	prefillIP = "127.0.1."
	decodeIP  = "127.0.2."
)

// routerPatience is how long the router's own dialler waits for a connection.
const routerPatience = 2 * time.Second

// options of a fleet. The zero value is one pair with a fast engine.
type options struct {
	prefills, decodes int // 0: one
	sim               sim.Config
	prefillSim        func(i int, c *sim.Config)
	decodeSim         func(i int, c *sim.Config)
	worker            func(c *worker.Config)
	router            func(c *router.Config)
}

// engineConfig is small, so that prompts have several chunks and slots run out.
func engineConfig() sim.Config {
	return sim.Config{Cells: 2048, Slots: 4, Chunk: 16, KVBytesPerToken: 256, CallTime: time.Millisecond}
}

// fleet is a router and its workers in one bubble.
type fleet struct {
	t      *testing.T
	net    *network
	opts   options
	began  time.Time
	ps, ds []*process
	client *http.Client
	admin  *http.Client
	host   *host // the client's
	logs   *logs
	close_ []func()
}

// process is one worker.
type process struct {
	*host
	f       *fleet
	role    worker.Role
	i       int
	steps   *steps
	sigterm context.CancelFunc
	ended   chan struct{}
	err     error
}

// inBubble runs a test of a fleet, and looks at its end that every gauge is back at
// its baseline.
func inBubble(t *testing.T, o options, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, o)
		defer f.close()
		test(t, f)
	})
}

func newFleet(t *testing.T, o options) *fleet {
	t.Helper()
	o.prefills, o.decodes = max(o.prefills, 1), max(o.decodes, 1)
	if o.sim.Cells == 0 {
		o.sim = engineConfig()
	}
	f := &fleet{t: t, net: newNetwork(), opts: o, began: time.Now(), logs: &logs{}}
	f.host = f.net.host(clientIP, time.Second)
	f.client = &http.Client{Transport: &http.Transport{DialContext: f.host.Dial, DisableKeepAlives: true}}
	f.admin = &http.Client{Transport: &http.Transport{DialContext: f.net.host(adminIP, time.Second).Dial}}
	cfg := router.Config{Log: f.logs.logger("router"), Dial: f.net.host(routerIP, routerPatience).Dial}
	for i := range o.prefills {
		p := f.start(worker.Prefill, i)
		f.ps = append(f.ps, p)
		cfg.Prefills = append(cfg.Prefills, router.Worker{URL: p.url()})
	}
	for i := range o.decodes {
		d := f.start(worker.Decode, i)
		f.ds = append(f.ds, d)
		cfg.Decodes = append(cfg.Decodes, router.Worker{URL: d.url()})
	}
	synctest.Wait()
	if o.router != nil {
		o.router(&cfg)
	}
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	wg.Go(func() { _ = r.Run(ctx) })
	lis, err := f.net.host(routerIP, routerPatience).Listen(routerIP + ":80")
	if err != nil {
		t.Fatal(err)
	}
	srv := api.NewServer(context.Background(), r.Handler(), slog.NewLogLogger(slog.DiscardHandler, 0))
	wg.Go(func() { _ = srv.Serve(lis) })
	f.close_ = append(f.close_, func() { srv.Close(); stop(); wg.Wait() })
	synctest.Wait() // the first health checks are answered
	return f
}

func (f *fleet) all() []*process { return append(append([]*process(nil), f.ps...), f.ds...) }

// start runs a worker process at the place of the i-th of its role.
func (f *fleet) start(role worker.Role, i int) *process {
	f.t.Helper()
	addr, change := prefillIP, f.opts.prefillSim
	if role == worker.Decode {
		addr, change = decodeIP, f.opts.decodeSim
	}
	p := &process{host: f.net.host(addr+fmt.Sprint(i+1), control.HelloTimeout), f: f, role: role, i: i, steps: &steps{}, ended: make(chan struct{})}
	c := f.opts.sim
	if change != nil {
		change(i, &c)
	}
	c.Hook = p.steps.hook
	cfg := worker.Config{Role: role, Host: p.addr, Port: httpPort, BootstrapPort: bootPort, ControlPort: ctlPort, DataPort: dataPort,
		Engine: "sim", Sim: c, Log: f.logs.logger(p.name()), Network: worker.Network{Listen: p.Listen, Dial: p.Dial}}
	if f.opts.worker != nil {
		f.opts.worker(&cfg)
	}
	ctx, sigterm := context.WithCancel(context.Background())
	p.sigterm = sigterm
	var wg sync.WaitGroup
	wg.Go(func() { defer close(p.ended); p.err = worker.Run(ctx, cfg) })
	f.close_ = append(f.close_, func() { sigterm(); wg.Wait() })
	return p
}

// restart puts a new process in the place of one that was killed.
func (p *process) restart() *process {
	n := p.f.start(p.role, p.i)
	if p.role == worker.Decode {
		p.f.ds[p.i] = n
	} else {
		p.f.ps[p.i] = n
	}
	return n
}

func (p *process) name() string { return fmt.Sprintf("%s %d", p.role, p.i) }
func (p *process) url() string  { return fmt.Sprintf("http://%s:%d", p.addr, httpPort) }

func (f *fleet) close() {
	if testing.Verbose() && os.Getenv("BOUNDS_LOG") != "" {
		defer func() { f.t.Log(f.logs.tail(400)) }()
	}
	f.net.heal()
	f.client.CloseIdleConnections()
	f.admin.CloseIdleConnections()
	for i := len(f.close_) - 1; i >= 0; i-- {
		f.close_[i]()
	}
	pass(control.HelloTimeout) // dials that net/http goes on with for nobody end
	if f.t.Failed() {
		f.t.Log(f.logs.tail(60))
	}
	if panics := f.logs.find("panic"); len(panics) > 0 {
		f.t.Errorf("panics: %s", panics[0])
	}
}

// pass lets the bubble's time go by, and everything settle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// steps are the library calls of one engine.
type steps struct {
	mu    sync.Mutex
	calls []call
	stuck chan struct{} // a call that begins now waits for it; nil: it does not
}

type call struct {
	kind string
	at   time.Time
}

func (s *steps) hook(op sim.Op) error {
	s.mu.Lock()
	s.calls = append(s.calls, call{op.Kind, time.Now()})
	stuck := s.stuck
	s.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	return nil
}

// stick lets no call return, as a library that hangs, until thaw is called.
func (s *steps) stick() (thaw func()) {
	stuck := make(chan struct{})
	s.mu.Lock()
	s.stuck = stuck
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.stuck = nil
		s.mu.Unlock()
		close(stuck)
	})
}

// since counts the calls of a kind that began after a moment.
func (s *steps) since(kind string, t time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.kind == kind && c.at.After(t) {
			n++
		}
	}
	return n
}

// logs are what all processes write.
type logs struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

type logWriter struct {
	l   *logs
	who string
}

func (w logWriter) Write(b []byte) (int, error) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	if w.l.began.IsZero() {
		w.l.began = time.Now()
	}
	w.l.lines = append(w.l.lines, fmt.Sprintf("%v %s %s", time.Since(w.l.began), w.who, strings.TrimSpace(string(b))))
	return len(b), nil
}

func (l *logs) logger(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{l, who}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// find returns the lines in which text stands.
func (l *logs) find(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logs) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}
