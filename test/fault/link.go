package fault

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// end is one side of a link: a worker's connection to the proxy.
type end struct {
	conn *conn
	send func([]byte) error
}

// conn is a TCP connection that can be cut within what is being written.
type conn struct {
	net.Conn
	left  atomic.Int64 // bytes until the cut, if limited
	limit atomic.Bool
}

// cutAfter lets n more bytes out, and then closes.
func (c *conn) cutAfter(n int) {
	c.left.Store(int64(n))
	c.limit.Store(true)
}

// Write writes what may still be written.
func (c *conn) Write(b []byte) (int, error) {
	if !c.limit.Load() {
		return c.Conn.Write(b)
	}
	left := int(c.left.Add(-int64(len(b)))) + len(b)
	if left > len(b) {
		return c.Conn.Write(b)
	}
	_, _ = c.Conn.Write(b[:max(left, 0)])
	c.Conn.Close()
	return 0, net.ErrClosed
}

func (c *conn) reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Conn.Close()
}

// link is a connection of decode's, and the one to prefill that belongs to it.
type link struct {
	p      *Proxy
	plane  Plane
	ends   [dirs]*end // by the direction of frames written to it
	frames [dirs]chan Frame
	lame   atomic.Bool // one side is gone on purpose
	torn   atomic.Bool // bytes were lost
	over   chan struct{}
	once   sync.Once
	work   sync.WaitGroup
}

// join makes a link of two connections, unless the proxy is closing.
func (p *Proxy) join(plane Plane, prefill, decode *end) *link {
	l := &link{p: p, plane: plane, ends: [dirs]*end{prefill, decode}, over: make(chan struct{})}
	for d := range l.frames {
		l.frames[d] = make(chan Frame)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.links[l] = struct{}{}
	return l
}

func (l *link) end(how func(*conn)) {
	l.once.Do(func() {
		close(l.over)
		l.p.mu.Lock()
		delete(l.p.links, l)
		l.p.mu.Unlock()
	})
	for _, e := range l.ends {
		how(e.conn)
	}
}

func (l *link) close() { l.end(func(c *conn) { c.Conn.Close() }) }
func (l *link) reset() { l.end((*conn).reset) }

// run carries frames both ways until the link is over. next reads one frame in a
// direction.
func (l *link) run(next func(Dir) (Frame, error)) {
	for d := range dirs {
		l.task("reader", func() { l.read(d, next) })
		l.task("pump", func() { l.pump(d) })
	}
	l.work.Wait()
}

func (l *link) task(name string, f func()) {
	l.work.Add(1)
	l.p.g.Task(name, func(context.Context) {
		defer l.work.Done()
		f()
	})
}

func (l *link) read(d Dir, next func(Dir) (Frame, error)) {
	defer close(l.frames[d])
	for {
		f, err := next(d)
		if err != nil {
			return
		}
		select {
		case l.frames[d] <- f:
		case <-l.over:
			return
		}
	}
}

// pump writes one direction's frames, less the faults.
func (l *link) pump(d Dir) {
	var late []byte // overtaken by the next
	wait := time.NewTimer(time.Hour)
	defer wait.Stop()
	for {
		select {
		case <-l.over:
			return
		case <-wait.C:
			l.write(d, late)
			late = nil
		case f, ok := <-l.frames[d]:
			if !ok {
				if !l.lame.Load() {
					l.close()
				}
				return
			}
			i, lost := l.p.judge(f)
			if lost {
				l.torn.Store(true)
				continue
			}
			if i != nil && i.rule.Do == Reorder && late == nil {
				late = f.bytes
				wait.Reset(reorderWait)
				continue
			}
			l.do(d, f, i)
			if late != nil {
				l.write(d, late)
				late = nil
			}
		}
	}
}

func (l *link) write(d Dir, b []byte) {
	if b == nil || l.lame.Load() {
		return
	}
	if err := l.ends[d].send(b); err != nil && !l.lame.Load() {
		l.close()
	}
}

// do is one frame with its fault, if it has one.
func (l *link) do(d Dir, f Frame, i *Injection) {
	if i == nil {
		l.write(d, f.bytes)
		return
	}
	r := &i.rule
	switch r.Do {
	case Drop, Hole:
		l.torn.Store(true)
	case Delay:
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		l.pause(i, timer.C)
		l.write(d, f.bytes)
	case Hold:
		l.pause(i, nil)
		l.write(d, f.bytes)
	case Duplicate:
		l.write(d, f.bytes)
		l.write(d, f.bytes)
	case Truncate:
		l.write(d, f.bytes[:r.at(len(f.bytes))])
	case Flip:
		b := slices.Clone(f.bytes)
		b[r.at(len(b))] ^= 1
		l.write(d, b)
	case Reset:
		l.reset()
	case Cut:
		l.ends[d].conn.cutAfter(r.at(len(f.bytes)))
		l.write(d, f.bytes)
	case HalfOpen:
		l.lame.Store(true)
		l.ends[d].conn.reset()
	default: // Reorder of a second frame: it went after one already
		l.write(d, f.bytes)
	}
}

// pause waits for until, for the injection's end or for the link's.
func (l *link) pause(i *Injection, until <-chan time.Time) {
	select {
	case <-until:
	case <-i.free:
	case <-l.over:
	}
}
