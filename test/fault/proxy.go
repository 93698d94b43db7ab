package fault

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/tandem-llm/tandem/internal/svc"
)

// Target is the prefill worker behind the proxy: host:port of each of its ports.
type Target struct{ Registry, Control, Data string }

// Proxy stands before one prefill worker.
type Proxy struct {
	target Target
	lis    [planes]net.Listener
	g      *svc.Group
	http   *http.Server
	grpc   *grpc.Server

	mu     sync.Mutex
	closed bool
	rules  []*Injection
	holes  [planes][dirs]bool
	links  map[*link]struct{}
	conns  map[string]*conn // accepted control connections, by the peer's address
	seen   map[Point]int
	done   map[string]int // "fault point" → frames
}

// New returns a proxy that listens on loopback and serves until Close.
func New(target Target) (*Proxy, error) {
	p := &Proxy{target: target, g: svc.New(context.Background(), "fault", slog.New(slog.DiscardHandler)),
		links: map[*link]struct{}{}, conns: map[string]*conn{}, seen: map[Point]int{}, done: map[string]int{}}
	for i := range p.lis {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("fault proxy: %w", err)
		}
		p.lis[i] = l
	}
	p.http = &http.Server{Handler: http.HandlerFunc(p.route)}
	p.grpc = p.controlServer()
	p.g.Task("registry", func(context.Context) { _ = p.http.Serve(p.lis[Registry]) })
	p.g.Task("control", func(context.Context) { _ = p.grpc.Serve(&controlListener{p.lis[Control], p}) })
	p.g.Task("data", func(ctx context.Context) { p.serveData(ctx) })
	return p, nil
}

// Port returns where the proxy listens for a plane.
func (p *Proxy) Port(plane Plane) int { return p.lis[plane].Addr().(*net.TCPAddr).Port }

func (p *Proxy) addr(plane Plane) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port(plane)))
}

// Close ends everything and returns when all of it has ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Heal()
	p.g.Stop(nil)
	for _, l := range p.lis {
		if l != nil {
			l.Close()
		}
	}
	p.Sever(Control)
	p.Sever(Data)
	if p.http != nil {
		_ = p.http.Close()
		p.grpc.Stop()
	}
	p.g.Wait()
}

// Sever resets every connection of a plane, on both sides.
func (p *Proxy) Sever(plane Plane) {
	p.mu.Lock()
	var all []*link
	for l := range p.links {
		if l.plane == plane {
			all = append(all, l)
		}
	}
	p.mu.Unlock()
	for _, l := range all {
		l.reset()
	}
}

// Links returns how many connections of a plane are open.
func (p *Proxy) Links(plane Plane) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.plane == plane {
			n++
		}
	}
	return n
}

// Seen returns how many frames came to each point, met by a rule or not.
func (p *Proxy) Seen() map[Point]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// Done returns what was done to how many frames, as "fault plane TYPE to worker".
func (p *Proxy) Done() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.done)
}
