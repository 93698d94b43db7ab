package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/llama"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// Role is what a worker process does.
type Role string

const (
	Prefill Role = "prefill" // computes KV and hands it over
	Decode  Role = "decode"  // takes KV over and generates
	Serve   Role = "serve"   // both in one, without a hand-over: the baseline
)

// Defaults of Config.
const (
	DefaultHost         = "127.0.0.1"
	DefaultDeadline     = 5 * time.Minute // of a request that names none
	MaxDeadline         = time.Hour
	DefaultDrainTimeout = 30 * time.Second
	DefaultBootstrap    = 8998 // SGLang's default for the registry
	// DefaultContext is small enough for any machine; --context raises it.
	DefaultContext = 8192
	DefaultSlots   = 16
	// DefaultAsideBytes holds some 14,000 tokens of gemma3-270m.
	DefaultAsideBytes = 256 << 20
)

// Config says what a worker process is.
type Config struct {
	Role Role
	Host string // to listen on; DefaultHost
	Port int    // HTTP; 0 picks a free one

	// Prefill's other ports; 0 picks a free one.
	BootstrapPort int // registry
	ControlPort   int // sessions
	DataPort      int // KV

	// Advertise is the host that a prefill worker announces to decode workers.
	// Default: Host, or the first address of this machine if Host is a wildcard.
	Advertise string
	// InsecureBind allows addresses other than loopback. Without mTLS anybody
	// who reaches the ports can use the worker.
	InsecureBind bool

	Engine string // "llama" or "sim"
	Llama  llama.Config
	Sim    sim.Config

	// Deterministic computes each sequence alone, in whole chunks. With bf16 KV a text then
	// depends on its request only. With f16 it does not quite: llama.cpp's attention on a
	// CPU adds in f16 then, in the order of the cells, and other requests decide which are
	// free; log probabilities were seen to move by 0.2.
	Deterministic bool
	StepTarget    time.Duration // how long one engine call should take at most
	NoPrefixCache bool          // compute every prompt whole
	Overcommit    bool          // admit by the prompt and some headroom; set a stream aside when cells run out
	AsideBytes    int           // memory for streams set aside; DefaultAsideBytes
	ArenaBytes    int           // memory for chunks; 0: enough for every slot
	Unpaired      int           // prefill: rooms that compute before READY
	MaxQueue      int           // requests without resources
	DrainTimeout  time.Duration // how long SIGTERM waits for rooms to finish

	Network Network // how this process listens and dials; TCP
	Log     *slog.Logger
}

// Network is how a worker process reaches others and is reached. The zero value is
// TCP; tests put a network in memory here.
type Network struct {
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (n Network) withDefaults() Network {
	if n.Listen == nil {
		n.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if n.Dial == nil {
		n.Dial = (&net.Dialer{Timeout: control.HelloTimeout}).DialContext
	}
	return n
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host = DefaultHost
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = decode.DefaultMaxQueue
	}
	if c.AsideBytes == 0 {
		c.AsideBytes = DefaultAsideBytes
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Network = c.Network.withDefaults()
	if c.Advertise == "" {
		c.Advertise = c.Host
		if ip := net.ParseIP(c.Host); ip != nil && ip.IsUnspecified() {
			c.Advertise = firstAddress()
		}
	}
	return c
}

// check refuses what cannot work, before anything is loaded.
func (c Config) check() error {
	switch c.Role {
	case Prefill, Decode, Serve:
	default:
		return engine.Misconfigured("role %q is none of prefill, decode, serve", c.Role)
	}
	if c.Engine != "llama" && c.Engine != "sim" {
		return engine.Misconfigured("engine %q is unknown: use llama, or sim to try the system without a model", c.Engine)
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"--context", min(c.Llama.Context, c.Sim.Cells)}, {"--slots", c.Sim.Slots}, {"--chunk", c.Sim.Chunk},
		{"--slots", c.Llama.Slots}, {"--threads", c.Llama.Threads}, {"--chunk", c.Llama.Chunk},
		{"--max-queue", c.MaxQueue}, {"--arena-bytes", c.ArenaBytes}, {"--aside-bytes", c.AsideBytes}} {
		if n.value < 0 {
			return engine.Misconfigured("%s %d: it cannot be below 0; leave it out for the default", n.flag, n.value)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--step-target", c.StepTarget}, {"--drain-timeout", c.DrainTimeout}} {
		if d.value < 0 {
			return engine.Misconfigured("%s %v: it cannot be below 0; leave it out for the default", d.flag, d.value)
		}
	}
	if !c.InsecureBind && !isLoopback(c.Host) {
		return engine.Misconfigured("--host %s is not loopback and the worker's ports have no authentication: use 127.0.0.1, or --insecure-bind on a network you trust", c.Host)
	}
	return nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func firstAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return DefaultHost
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return DefaultHost
}

// listen binds a port now, so that what is announced is what is bound.
func (c Config) listen(port int, what, flag string) (net.Listener, error) {
	l, err := c.Network.Listen(net.JoinHostPort(c.Host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("the %s port %s:%d cannot be bound: %w; free it or choose another with %s", what, c.Host, port, err, flag)
	}
	return l, nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
