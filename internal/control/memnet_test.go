package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memnet is a network in memory, for tests in fake time: connections with a
// bounded buffer each way that can be frozen, as a peer under SIGSTOP, or cut.
type memnet struct {
	mu     sync.Mutex
	lis    map[string]*memListener
	conns  []*memConn
	dialed int
	dials  []time.Time
	frozen bool
	spoil  func(p []byte) // sees what each Write is about to send, if not nil
}

func newMemnet() *memnet { return &memnet{lis: map[string]*memListener{}} }

func (m *memnet) listen(addr string) *memListener {
	l := &memListener{net: m, addr: addr, accept: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	m.lis[addr] = l
	m.mu.Unlock()
	return l
}

func (m *memnet) dial(ctx context.Context, addr string) (net.Conn, error) {
	m.mu.Lock()
	l := m.lis[addr]
	m.dialed++
	m.dials = append(m.dials, time.Now())
	m.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	a, b := newHalf(), newHalf()
	near := &memConn{net: m, r: a, w: b, addr: memAddr(addr)}
	far := &memConn{net: m, r: b, w: a, addr: memAddr("dialler")}
	select {
	case l.accept <- far:
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	m.conns = append(m.conns, near, far)
	a.frozen, b.frozen = m.frozen, m.frozen
	m.mu.Unlock()
	return near, nil
}

// freeze stops all bytes, and the news of a closed connection, on every connection;
// nobody gets an error.
func (m *memnet) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = true
	for _, c := range m.conns {
		c.r.set(func(h *half) { h.frozen = true })
	}
}

// deafen lets no bytes come to the diallers on the connections made so far.
func (m *memnet) deafen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i < len(m.conns); i += 2 {
		m.conns[i].r.set(func(h *half) { h.frozen = true })
	}
}

func (m *memnet) thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = false
	for _, c := range m.conns {
		c.r.set(func(h *half) { h.frozen = false })
	}
}

// cut breaks every connection made so far.
func (m *memnet) cut() {
	m.mu.Lock()
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

type memListener struct {
	net    *memnet
	addr   string
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		if l.net.lis[l.addr] == l {
			delete(l.net.lis, l.addr)
		}
		l.net.mu.Unlock()
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return memAddr(l.addr) }

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

const memBuffer = 256 << 10 // about what two kernels hold

// half is one direction.
type half struct {
	mu             sync.Mutex
	cond           *sync.Cond
	buf            []byte
	closed, frozen bool
	left, wleft    bool // the reader, the writer has closed its own end
	rd, wd         time.Time
}

func newHalf() *half {
	h := &half{}
	h.cond = sync.NewCond(&h.mu)
	return h
}

func (h *half) set(fn func(*half)) {
	h.mu.Lock()
	fn(h)
	h.mu.Unlock()
	h.cond.Broadcast()
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

type memConn struct {
	net  *memnet
	r, w *half
	addr memAddr
}

func (c *memConn) Read(p []byte) (int, error) {
	h := c.r
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case past(h.rd):
			return 0, os.ErrDeadlineExceeded
		case len(h.buf) > 0 && !h.frozen:
			n := copy(p, h.buf)
			h.buf = h.buf[n:]
			h.cond.Broadcast()
			return n, nil
		case h.left:
			return 0, net.ErrClosed
		case h.closed && !h.frozen:
			return 0, io.EOF
		}
		h.cond.Wait()
	}
}

func (c *memConn) Write(p []byte) (n int, err error) {
	c.net.mu.Lock()
	if c.net.spoil != nil {
		p = bytes.Clone(p)
		c.net.spoil(p)
	}
	c.net.mu.Unlock()
	h := c.w
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 {
		switch {
		case h.closed && !h.frozen, h.wleft:
			return n, io.ErrClosedPipe
		case past(h.wd):
			return n, os.ErrDeadlineExceeded
		case len(h.buf) >= memBuffer:
			h.cond.Wait()
			continue
		}
		k := min(len(p), memBuffer-len(h.buf))
		h.buf = append(h.buf, p[:k]...)
		p, n = p[k:], n+k
		h.cond.Broadcast()
	}
	return n, nil
}

func (c *memConn) Close() error {
	c.r.set(func(h *half) { h.closed, h.left, h.buf = true, true, nil })
	c.w.set(func(h *half) { h.closed, h.wleft = true, true })
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return memAddr("local") }
func (c *memConn) RemoteAddr() net.Addr { return c.addr }

func (c *memConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.r.set(func(h *half) { h.rd = t })
	c.wakeAt(c.r, t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.w.set(func(h *half) { h.wd = t })
	c.wakeAt(c.w, t)
	return nil
}

func (c *memConn) wakeAt(h *half, t time.Time) {
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), h.cond.Broadcast)
	}
}
