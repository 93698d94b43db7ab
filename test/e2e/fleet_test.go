//go:build unix

package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/test/fault"
)

// spec is what a fleet is made of.
type spec struct {
	engine                  backend
	prefill, decode, router []string // flags of one process
	unfit                   bool     // the two workers cannot work together
	proxy                   bool     // a fault proxy stands between them
}

// fleet is a router, a prefill and a decode worker, each a process.
type fleet struct {
	t                       *testing.T
	engine                  backend
	router, prefill, decode *process
	ports                   ports
	prompts                 int          // used by storms
	fault                   *fault.Proxy // nil without one
	access                  string       // the router's access log

	mu      sync.Mutex
	moments map[string]int // for the table
	quiet   time.Duration  // the longest way back to the baseline
}

// ports of one fleet: fixed, so that a process can come back on its own.
type ports struct{ router, prefill, decode, bootstrap, control, data int }

func newFleet(t *testing.T, s spec) *fleet {
	t.Helper()
	f := &fleet{t: t, engine: s.engine, moments: map[string]int{}, access: filepath.Join(t.TempDir(), "access.jsonl")}
	t.Cleanup(f.audit) // after the processes' end: cleanups run backwards
	for _, p := range []*int{&f.ports.router, &f.ports.prefill, &f.ports.decode, &f.ports.bootstrap, &f.ports.control, &f.ports.data} {
		*p = freePort(t)
	}
	f.prefill = worker("prefill", f.ports.prefill, s.engine.flags(t), s.prefill,
		"--bootstrap-port", strconv.Itoa(f.ports.bootstrap), "--control-port", strconv.Itoa(f.ports.control), "--data-port", strconv.Itoa(f.ports.data))
	f.decode = worker("decode", f.ports.decode, s.engine.flags(t), s.decode)
	registry := f.ports.bootstrap
	if s.proxy {
		f.between()
		registry = f.fault.Port(fault.Registry)
	}
	f.router = &process{name: "router", url: local(f.ports.router), ready: "/health", args: append([]string{"router", "--port", strconv.Itoa(f.ports.router),
		"--access-log", f.access, "--prefill", f.prefill.url + "," + strconv.Itoa(registry), "--decode", f.decode.url}, s.router...)}
	f.prefill.spawn(t)
	f.decode.spawn(t)
	f.prefill.awaitReady(t, startTimeout)
	f.decode.awaitReady(t, startTimeout)
	if s.unfit {
		f.router.ready = "/livez"
	}
	f.router.start(t)
	return f
}

// between puts the fault proxy before prefill's ports.
func (f *fleet) between() {
	f.t.Helper()
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	p, err := fault.New(fault.Target{Registry: at(f.ports.bootstrap), Control: at(f.ports.control), Data: at(f.ports.data)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(p.Close)
	f.fault = p
}

// worker describes one worker process.
func worker(role string, port int, flags ...any) *process {
	p := &process{name: role, url: local(port), ready: "/readyz", args: []string{role, "--port", strconv.Itoa(port)}}
	for _, f := range flags {
		switch f := f.(type) {
		case string:
			p.args = append(p.args, f)
		case []string:
			p.args = append(p.args, f...)
		}
	}
	return p
}

func local(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// workers are the two that hold requests' memory.
func (f *fleet) workers() []*process { return []*process{f.prefill, f.decode} }

func (f *fleet) all() []*process { return []*process{f.router, f.prefill, f.decode} }

// watched returns the processes to scrape.
func watched(ps ...*process) []watch.Process {
	out := make([]watch.Process, len(ps))
	for i, p := range ps {
		out[i] = p.watched()
	}
	return out
}

// alive fails the test if a process has ended or logged a fault of its own.
func (f *fleet) alive() {
	f.t.Helper()
	for _, p := range f.all() {
		p.alive(f.t)
	}
}

// backend is what the workers of a fleet compute with.
type backend interface {
	// flags are the workers' flags.
	flags(t *testing.T) []string
	// prompt returns n token ids, different for each key.
	prompt(n, key int) []int
	// expect returns the text that follows a prompt, "" if only the engine knows.
	expect(prompt []int, tokens int) string
}

// simEngine is the simulator.
type simEngine struct {
	tokenTime, callTime string
	chunk, kvBytes      int
}

func (e simEngine) flags(*testing.T) []string {
	f := []string{"--engine", "sim", "--sim-token-time", e.tokenTime, "--sim-call-time", e.callTime}
	if e.chunk > 0 {
		f = append(f, "--chunk", strconv.Itoa(e.chunk))
	}
	if e.kvBytes > 0 {
		f = append(f, "--sim-kv-bytes", strconv.Itoa(e.kvBytes))
	}
	return f
}

func (simEngine) prompt(n, key int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 272 + (i*i*7+i*13+key*101)%3800 // words, see sim's tokenizer
	}
	return out
}

// llamaEngine is llama.cpp on a small generated model.
type llamaEngine struct{ kind testmodel.Kind }

func (e llamaEngine) flags(t *testing.T) []string {
	dir := testmodel.Library(t)
	path, err := testmodel.Path(e.kind)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--engine", "llama", "--llama-lib", dir, "--model", path, "--threads", "1"}
}

func (llamaEngine) prompt(n, key int) []int {
	out := make([]int, n)
	out[0] = 1 // begin of sequence
	for i := 1; i < n; i++ {
		out[i] = 262 + (i*i*7+i*13+key*101)%200
	}
	return out
}

func (llamaEngine) expect([]int, int) string { return "" }
