package bounds

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// kernelBuffer is what one direction holds before a writer waits.
const kernelBuffer = 256 << 10

// pipe is one direction of a connection.
type pipe struct {
	mu   sync.Mutex
	cond *sync.Cond

	segs    []segment
	size    int
	blocked bool
	held    bool // after allowed bytes more nothing is read
	allowed int
	delay   time.Duration
	left    int  // bytes until the connection breaks; -1: it does not
	fin     bool // the writer has closed
	gone    bool // the reader has closed
	broken  bool // reset: the reader may still take what had arrived
	rd, wd  time.Time
}

// segment is bytes that arrive at a time.
type segment struct {
	at time.Time
	b  []byte
}

func newPipe() *pipe {
	p := &pipe{left: -1}
	p.cond = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) change(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	p.cond.Broadcast()
}

// wakeAt lets whoever waits look again at a time.
func (p *pipe) wakeAt(t time.Time) {
	if d := time.Until(t); d > 0 {
		time.AfterFunc(d, p.cond.Broadcast)
	}
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.gone:
			return 0, net.ErrClosed
		case past(p.rd):
			return 0, os.ErrDeadlineExceeded
		case (p.blocked || p.held && p.allowed == 0) && !p.broken:
		case len(p.segs) > 0 && past(p.segs[0].at):
			s := &p.segs[0]
			if p.held && !p.broken {
				b = b[:min(len(b), p.allowed)]
			}
			n := copy(b, s.b)
			p.allowed -= n
			if s.b = s.b[n:]; len(s.b) == 0 {
				p.segs = p.segs[1:]
			}
			p.size -= n
			p.cond.Broadcast()
			return n, nil
		case len(p.segs) > 0:
		case p.broken:
			return 0, &net.OpError{Op: "read", Net: "mem", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		case p.fin:
			return 0, io.EOF
		}
		p.cond.Wait()
	}
}

// write takes what there is room for; cut says that the connection breaks now.
func (p *pipe) write(b []byte) (n int, cut bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		switch {
		case p.fin:
			return n, false, net.ErrClosed
		case p.broken, p.gone && !p.blocked:
			return n, false, &net.OpError{Op: "write", Net: "mem", Err: os.NewSyscallError("write", syscall.EPIPE)}
		case past(p.wd):
			return n, false, os.ErrDeadlineExceeded
		case p.left == 0:
			return n, true, &net.OpError{Op: "write", Net: "mem", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
		case p.size >= kernelBuffer:
			p.cond.Wait()
			continue
		}
		k := min(len(b), kernelBuffer-p.size)
		if p.left >= 0 {
			k = min(k, p.left)
			p.left -= k
		}
		at := time.Now().Add(p.delay)
		p.segs = append(p.segs, segment{at, append([]byte(nil), b[:k]...)})
		p.size += k
		b, n = b[k:], n+k
		p.cond.Broadcast()
		p.wakeAt(at)
	}
	return n, p.left == 0, nil
}

// conn is one end of a connection.
type conn struct {
	net           *network
	r, w          *pipe
	local, remote netip.AddrPort
	dialled       *conn // the dialler's end: itself, or the other one
}

func newConn(n *network, from, to netip.AddrPort) (near, far *conn) {
	up, down := newPipe(), newPipe()
	near = &conn{net: n, r: down, w: up, local: from, remote: to}
	far = &conn{net: n, r: up, w: down, local: to, remote: from, dialled: near}
	near.dialled = near
	return near, far
}

// pipes returns the directions of a dialler's end.
func (c *conn) pipes(w way) (p []*pipe) {
	if w&out != 0 {
		p = append(p, c.w)
	}
	if w&back != 0 {
		p = append(p, c.r)
	}
	return p
}

func (c *conn) suffer(f *fault) {
	for _, p := range c.pipes(f.way) {
		p.change(func() {
			p.blocked = p.blocked || f.block
			p.delay = max(p.delay, f.delay)
		})
	}
}

// break_ resets the connection for both ends.
func (c *conn) break_() {
	for _, p := range []*pipe{c.r, c.w} {
		p.change(func() { p.broken = true })
	}
	c.forget()
}

func (c *conn) forget() {
	c.net.mu.Lock()
	delete(c.net.conns, c.dialled)
	c.net.mu.Unlock()
}

func (c *conn) Read(b []byte) (int, error) { return c.r.read(b) }

func (c *conn) Write(b []byte) (int, error) {
	n, cut, err := c.w.write(b)
	if cut {
		c.break_()
	}
	return n, err
}

func (c *conn) Close() error {
	c.w.change(func() { c.w.fin = true })
	c.r.change(func() { c.r.gone = true })
	// A connection that one end has closed can still be blocked for the other.
	c.r.mu.Lock()
	over := c.r.fin
	c.r.mu.Unlock()
	if over {
		c.forget()
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (c *conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.r.change(func() { c.r.rd = t })
	c.r.wakeAt(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.w.change(func() { c.w.wd = t })
	c.w.wakeAt(t)
	return nil
}
