package bounds

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// network is hosts in memory and the faults between them.
type network struct {
	mu     sync.Mutex
	listen map[netip.AddrPort]*listener
	conns  map[*conn]struct{} // the dialler's ends
	faults []*fault
	port   uint16 // of the next dialler
}

func newNetwork() *network {
	return &network{listen: map[netip.AddrPort]*listener{}, conns: map[*conn]struct{}{}, port: 40000}
}

// way is a direction, seen from who dialled.
type way uint8

const (
	out  way = 1 << iota // from the dialler
	back                 // to the dialler
	both = out | back
)

// route names connections: by who dialled, who was dialled and at which port. What
// is zero names all.
type route struct {
	from, to string
	port     uint16
}

func (r route) names(c *conn) bool {
	return (r.from == "" || r.from == c.local.Addr().String()) &&
		(r.to == "" || r.to == c.remote.Addr().String()) && (r.port == 0 || r.port == c.remote.Port())
}

// fault is what happens to the connections of a route, those made later included,
// until it is healed.
type fault struct {
	route
	way   way
	block bool
	hole  bool          // block, and let no connection be made
	delay time.Duration // of every byte
}

// block lets no byte through, and tells nobody.
func (n *network) block(r route, w way) { n.add(&fault{route: r, way: w, block: true}) }

// blackhole lets nothing through, also no new connection.
func (n *network) blackhole(r route) { n.add(&fault{route: r, way: both, block: true, hole: true}) }

// slow delays every byte.
func (n *network) slow(r route, d time.Duration) { n.add(&fault{route: r, way: both, delay: d}) }

func (n *network) add(f *fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
	for c := range n.conns {
		if f.names(c) {
			c.suffer(f)
		}
	}
}

// heal ends all faults. What was held back arrives.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = nil
	for c := range n.conns {
		for _, p := range []*pipe{c.w, c.r} {
			p.change(func() { p.blocked, p.held, p.delay = false, false, 0 })
		}
	}
}

// reset breaks the connections that there are. It returns how many.
func (n *network) reset(r route) (broken int) {
	for _, c := range n.named(r) {
		c.break_()
		broken++
	}
	return broken
}

// cut breaks each connection that there is after k more bytes in one direction.
func (n *network) cut(r route, w way, k int) {
	for _, c := range n.named(r) {
		for _, p := range c.pipes(w) {
			p.change(func() { p.left = k })
		}
	}
}

// hold lets k more bytes through in one direction of each connection that there is,
// and then none until it heals.
func (n *network) hold(r route, w way, k int) {
	for _, c := range n.named(r) {
		for _, p := range c.pipes(w) {
			p.change(func() { p.held, p.allowed = true, k })
		}
	}
}

func (n *network) named(r route) (found []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if r.names(c) {
			found = append(found, c)
		}
	}
	return found
}

// host is one process's place on the network. A process that takes the place of one
// that was killed is another host with the same address.
type host struct {
	net      *network
	addr     string
	patience time.Duration // of a dial into a black hole, as a net.Dialer has

	mu   sync.Mutex
	dead bool
}

func (n *network) host(addr string, patience time.Duration) *host {
	return &host{net: n, addr: addr, patience: patience}
}

// kill makes the kernel of the host speak for a process that is gone: connections
// are reset, new ones refused.
func (h *host) kill() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	h.net.mu.Lock()
	for at, l := range h.net.listen {
		if l.host == h {
			delete(h.net.listen, at)
		}
	}
	h.net.mu.Unlock()
	h.net.reset(route{from: h.addr})
	h.net.reset(route{to: h.addr})
}

// freeze holds everything from and to the host back, as SIGSTOP does: its kernel
// still takes connections.
func (h *host) freeze() {
	h.net.block(route{from: h.addr}, both)
	h.net.block(route{to: h.addr}, both)
}

// Listen binds a port; 0 is not served.
func (h *host) Listen(addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.net.listen[at] != nil {
		return nil, fmt.Errorf("%s: %w", addr, syscall.EADDRINUSE)
	}
	l := &listener{host: h, at: at, backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
	h.net.listen[at] = l
	return l, nil
}

// Dial opens a connection to a port of some host.
func (h *host) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Net: "mem", Err: err} }
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fail(err)
	}
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()
	if dead {
		return fail(os.NewSyscallError("connect", syscall.ENETUNREACH))
	}
	n := h.net
	n.mu.Lock()
	n.port++
	near, far := newConn(n, netip.AddrPortFrom(netip.MustParseAddr(h.addr), n.port), to)
	hole := false
	for _, f := range n.faults {
		if f.names(near) {
			hole = hole || f.hole
			near.suffer(f)
		}
	}
	l := n.listen[to]
	if l != nil && !hole {
		n.conns[near] = struct{}{}
	}
	n.mu.Unlock()
	switch {
	case hole:
		ctx, cancel := context.WithTimeout(ctx, h.patience)
		defer cancel()
		<-ctx.Done()
		return fail(os.ErrDeadlineExceeded)
	case l == nil:
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	select {
	case l.backlog <- far:
		return near, nil
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
}

// listener is one bound port.
type listener struct {
	host    *host
	at      netip.AddrPort
	backlog chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.host.net.mu.Lock()
		if l.host.net.listen[l.at] == l {
			delete(l.host.net.listen, l.at)
		}
		l.host.net.mu.Unlock()
		for {
			select {
			case c := <-l.backlog:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }
