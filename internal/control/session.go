package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// stream is what both ends of a gRPC stream have in common.
type stream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// session is one connection to one peer: one reader, one writer. The reader is
// the dialler's task or gRPC's handler goroutine, the writer a task.
type session struct {
	n      *Node
	addr   string
	dial   *dial   // nil when accepted
	peer   *remote // set by attach, before the writer starts
	stream stream

	mu     sync.Mutex
	conn   net.Conn           // nil until a dialler has one
	cancel context.CancelFunc // nil when accepted
	err    error              // why it was closed
	mail   mail

	stop    chan struct{} // closed by close
	done    chan struct{} // closed when reader and writer have ended
	parted  chan struct{} // closed when the peer has answered our goodbye
	part    sync.Once
	running atomic.Int32
	wake    chan struct{} // one token: there is mail
	writing atomic.Int64  // Node.now when the current write began, 0 between writes
	lagThen atomic.Int64  // Node.lag at that moment
}

// mail is the session's own frames, which go before the outbox. There is at
// most one of each, so a peer that sends PINGs without end costs nothing.
type mail struct {
	ping, pong, drain bool
	bye               bool // after drain: a PING with the sequence number goodbye
	pingSeq, pongSeq  uint64
	pingAt            int64 // Node.now when pingSeq was made
}

func newSession(n *Node, addr string, d *dial) *session {
	return &session{n: n, addr: addr, dial: d, parted: make(chan struct{}),
		stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// close ends the session from any goroutine: it cuts the connection, which
// releases a blocked read or write. The first reason wins.
func (s *session) close(why error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = why
		close(s.stop)
	}
	conn, cancel := s.conn, s.cancel
	s.mu.Unlock()
	if !first {
		return
	}
	if conn != nil {
		conn.Close()
	}
	if cancel != nil {
		cancel()
	}
}

// own takes a dialled connection; one that comes after close is closed.
func (s *session) own(conn net.Conn) {
	s.mu.Lock()
	s.conn = conn
	closed := s.err != nil
	s.mu.Unlock()
	if closed {
		conn.Close()
	}
}

func (s *session) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *session) post(fn func(*mail)) {
	s.mu.Lock()
	fn(&s.mail)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the session's life on the reader's goroutine. It returns why it ended;
// nothing a peer does makes it panic.
func (s *session) run() (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.n.cfg.Log.Error("panic in a control session", "addr", s.addr, "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
			s.close(err)
			if s.peer != nil {
				s.n.detach(s.peer, s, err)
			}
		}
	}()
	timer := time.AfterFunc(HelloTimeout, func() { s.close(fmt.Errorf("no HELLO in %v", HelloTimeout)) })
	defer timer.Stop()
	info, err := s.handshake()
	if err != nil {
		return s.because(err)
	}
	p, err := s.n.attach(s, info)
	if err != nil {
		s.refuse(err)
		return s.because(err)
	}
	timer.Stop()
	s.mu.Lock()
	if c, ok := s.conn.(*gateConn); ok {
		c.up()
	}
	s.mu.Unlock()
	s.n.cfg.Log.Info("session up", "peer", p.inc, "addr", s.addr, "build", info.Build)
	s.running.Store(2)
	if !s.n.task("writer", func(context.Context) { defer s.ended(); s.write(p) }) {
		s.ended()
		s.close(ErrNodeClosed)
	}
	err = s.because(s.read(p))
	s.close(err)
	s.n.detach(p, s, err)
	s.ended()
	if s.n.left(p) || s.n.ending.Load() || errors.Is(err, ErrForgotten) {
		s.n.cfg.Log.Debug("session ended", "peer", p.inc, "addr", s.addr, "err", err)
		s.n.depart(p)
		return err
	}
	s.n.cfg.Log.Info("session down", "peer", p.inc, "addr", s.addr, "err", plain(err))
	return err
}

// plain is an error as people read it, without what gRPC puts around it.
func plain(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return err.Error()
}

// goodbye is the sequence number of the PING that says that the node stops once it
// is answered; ordinary ones count from 1.
const goodbye = math.MaxUint64

func (s *session) ended() {
	if s.running.Add(-1) == 0 {
		close(s.done)
	}
}

// because prefers the reason the session was closed for over the network error
// that closing it caused.
func (s *session) because(err error) error {
	if why := s.reason(); why != nil {
		return why
	}
	return err
}

// handshake exchanges HELLOs: the dialler's first.
func (s *session) handshake() (Peer, error) {
	if s.dial != nil {
		own, err := s.n.hello(nil)
		if err != nil {
			return Peer{}, err
		}
		s.n.mu.Lock()
		last := s.dial.last
		s.n.mu.Unlock()
		if err := s.sayHello(own, Frame{Fenced: s.n.fencedMark(last)}); err != nil {
			return Peer{}, err
		}
	}
	f, err := s.hearHello()
	if err != nil {
		return Peer{}, err
	}
	f.Peer.Addr = s.addr
	if err := s.n.prepare(s, f); err != nil {
		s.refuse(err)
		return Peer{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	own, err := s.n.hello(&f.Peer)
	if err != nil {
		s.refuse(err)
		return Peer{}, fmt.Errorf("%w by this worker: %w", ErrRefused, err)
	}
	if s.dial == nil {
		if err := s.sayHello(own, Frame{Fenced: s.n.fencedMark(f.From)}); err != nil {
			return Peer{}, err
		}
	}
	return f.Peer, nil
}

func (s *session) sayHello(own Peer, f Frame) error {
	f.Type, f.Peer = Hello, own
	b := s.n.encode(f)
	if b == nil {
		return errors.New("own HELLO does not fit the wire") // more than MaxTransports
	}
	return s.stream.SendMsg(b)
}

// hearHello reads the peer's first frame, which is HELLO or REFUSE.
func (s *session) hearHello() (Frame, error) {
	var b []byte
	if err := s.stream.RecvMsg(&b); err != nil {
		return Frame{}, err
	}
	f, err := Decode(b)
	if err != nil {
		s.n.drops.reject(err)
		s.refuse(err)
		return Frame{}, err
	}
	switch f.Type {
	case Hello:
		return f, nil
	case Refuse:
		return Frame{}, fmt.Errorf("%w: %w", ErrRefused, &f.Cause)
	}
	s.n.drops.misplaced.add(1)
	err = fmt.Errorf("the first frame is %v, not HELLO", f.Type)
	s.refuse(err)
	return Frame{}, err
}

// refuse tells the peer why there is no session. The connection is left open
// for the peer to read it: a dialler waits for the other end to close, an
// acceptor's gate closes it after HelloTimeout.
func (s *session) refuse(why error) {
	if s.stream.SendMsg(s.n.encode(Frame{Type: Refuse, Cause: causeOf(why)})) != nil || s.dial == nil {
		return
	}
	var rest []byte
	for s.stream.RecvMsg(&rest) == nil { // ends by the HELLO timer at the latest
	}
}

// read delivers frames until the connection ends. Bad ones are counted and
// dropped; too many of them end this connection.
func (s *session) read(p *remote) error {
	var bad int
	var window time.Time
	for {
		var b []byte
		if err := s.stream.RecvMsg(&b); err != nil {
			return err
		}
		good, err := s.take(p, b)
		if err != nil {
			return err
		}
		if good {
			continue
		}
		if now := time.Now(); now.Sub(window) > GarbageWindow {
			window, bad = now, 0
		}
		if bad++; bad > GarbageBudget {
			return fmt.Errorf("%w: more than %d in %v", ErrGarbage, GarbageBudget, GarbageWindow)
		}
	}
}

// take handles one frame. good says that it was one; an error ends the session.
func (s *session) take(p *remote, b []byte) (good bool, err error) {
	defer func() {
		if v := recover(); v != nil { // a fault of ours: it costs this frame alone
			p.drops.panics.add(1)
			s.n.cfg.Log.Error("panic on a control frame", "peer", p.inc, "value", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	f, err := Decode(b)
	if err != nil {
		p.drops.reject(err)
		s.n.cfg.Log.Debug("bad control frame", "peer", p.inc, "err", err)
		return false, nil
	}
	if f.From != p.inc {
		p.drops.stale.add(1)
		return false, nil
	}
	p.hear(s.n)
	s.deliver(p, f.Message.Room, func(h Handler) { // a live peer that was suspect is alive again
		if f.Type.room() {
			p.received.Add(1)
			h.Message(p.inc, f.Message)
		}
	})
	switch f.Type {
	case Ping:
		if f.Seq == goodbye {
			s.n.mu.Lock()
			p.leaving = true
			s.n.mu.Unlock()
		}
		s.post(func(m *mail) { m.pong, m.pongSeq = true, f.Seq })
	case Pong:
		if f.Seq == goodbye {
			s.part.Do(func() { close(s.parted) })
		}
		s.mu.Lock()
		if f.Seq == s.mail.pingSeq {
			p.rtt.Store(s.n.now() - s.mail.pingAt)
		}
		s.mu.Unlock()
	case Drain:
		s.n.mu.Lock()
		p.draining = true
		s.n.mu.Unlock()
		s.deliver(p, 0, func(h Handler) { h.Drain(p.inc) })
	case Refuse:
		return true, fmt.Errorf("%w: %w", ErrRefused, &f.Cause)
	case Hello:
		p.drops.misplaced.add(1)
		return false, nil
	}
	return true, nil
}

// deliver calls the handler if s is still the peer's session.
func (s *session) deliver(p *remote, rm id.Room, fn func(Handler)) {
	p.callMu.Lock()
	defer p.callMu.Unlock()
	s.n.mu.Lock()
	current, suspect := p.sess == s, p.state == Suspect
	s.n.mu.Unlock()
	if !current {
		p.drops.stale.add(1)
		return
	}
	if suspect {
		s.n.setState(p, Suspect, Alive)
	}
	s.n.call(p, rm, fn)
}

// lasting is what a refusal's error says, if it is one that asking again does not
// change: the two workers do not fit. Any other, of a HELLO whose bytes were spoilt on
// their way or of a peer that has too many sessions, is as good as a lost connection.
func lasting(err error) *room.Cause {
	if c := causeText(err); c != nil && c.Code == room.LayoutMismatch {
		return c
	}
	return nil
}

// causeText is what a refusal's error says.
func causeText(err error) *room.Cause {
	if !errors.Is(err, ErrRefused) {
		return nil
	}
	c := causeOf(err)
	return &c
}
