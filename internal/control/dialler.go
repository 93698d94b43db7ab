package control

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

// dial is one address to keep a session to. All fields are under Node.mu.
type dial struct {
	addr    string
	last    id.Incarnation // who answered last
	next    time.Time      // of the next attempt
	pause   time.Duration  // before the one after that
	sess    *session       // of the running attempt
	running bool
	err     error     // of the last attempt
	warned  time.Time // when that was last told, zero after a session
}

// DialStatus is one dialled address.
type DialStatus struct {
	Addr        string         `json:"addr"`
	Incarnation id.Incarnation `json:"incarnation"` // who answered last
	Connected   bool           `json:"connected"`
	Refused     *room.Cause    `json:"refused,omitempty"` // why there will be no session, if one end refused what the other is
	Err         string         `json:"err,omitempty"`     // of the last attempt
}

// Dial keeps a session to that address from now on, with jittered back-off. It
// does nothing if it already does, and may be called before Run.
func (n *Node) Dial(addr string) {
	n.mu.Lock()
	if _, ok := n.dials[addr]; !ok && !n.stopped {
		n.dials[addr] = &dial{addr: addr, next: time.Now(), pause: MinRedial}
	}
	n.mu.Unlock()
	n.wakeDialler()
}

// Forget ends what Dial began. The session, if any, is closed.
func (n *Node) Forget(addr string) {
	n.mu.Lock()
	d := n.dials[addr]
	delete(n.dials, addr)
	var s *session
	if d != nil {
		s = d.sess
	}
	n.mu.Unlock()
	if s != nil {
		s.close(ErrForgotten)
	}
}

// At returns who answers at a dialled address, if a session is up.
func (n *Node) At(addr string) (id.Incarnation, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.dials[addr]
	if d == nil {
		return 0, false
	}
	p := n.peers[d.last]
	return d.last, p != nil && p.sess != nil
}

// Dials returns the status of every dialled address.
func (n *Node) Dials() []DialStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]DialStatus, 0, len(n.dials))
	for _, d := range n.dials {
		p := n.peers[d.last]
		st := DialStatus{Addr: d.addr, Incarnation: d.last, Connected: p != nil && p.sess != nil}
		if d.err != nil && !st.Connected {
			st.Err, st.Refused = d.err.Error(), lasting(d.err)
		}
		out = append(out, st)
	}
	return out
}

func (n *Node) wakeDialler() {
	select {
	case n.redial <- struct{}{}:
	default:
	}
}

// dialler starts an attempt, which is also the session it leads to, for each
// address that is due.
func (n *Node) dialler(ctx context.Context, l *svc.Loop) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-n.redial:
		}
		due, wait := n.due()
		for _, d := range due {
			if !n.task("session", func(ctx context.Context) { n.attempt(ctx, d) }) {
				return nil
			}
			l.Progress()
		}
		l.Beat()
		timer.Reset(wait)
	}
}

// due returns the addresses to dial now, marked as running, and how long until
// the next one.
func (n *Node) due() (due []*dial, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	wait = MaxRedial
	for _, d := range n.dials {
		if d.running {
			continue
		}
		if left := d.next.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		// Another address leads to the same worker: one session is enough.
		if p := n.peers[d.last]; p != nil && p.sess != nil && p.sess.dial != d {
			d.next = now.Add(RefusedPause)
			continue
		}
		d.running, d.sess = true, newSession(n, d.addr, d)
		due = append(due, d)
	}
	return due, wait
}

func (n *Node) attempt(ctx context.Context, d *dial) {
	n.mu.Lock()
	s := d.sess
	n.mu.Unlock()
	began := time.Now()
	err := errors.New("panic") // unless connect returns
	defer func() {
		s.close(err)
		n.mu.Lock()
		defer n.mu.Unlock()
		if s.peer != nil { // there was one: the next failure is news, unless the peer said that it goes
			d.warned = time.Time{}
			if s.peer.leaving {
				d.warned = time.Now()
			}
		}
		if n.news(d, s, err) {
			d.warned = time.Now()
			n.cfg.Log.Warn("no session with a prefill worker: its address cannot be reached, or one of the two refused", "addr", d.addr, "err", plain(err))
		}
		if time.Since(began) > SteadyAfter && s.peer != nil {
			d.pause = MinRedial
		}
		pause := d.pause
		d.pause = min(2*d.pause, MaxRedial)
		if lasting(err) != nil {
			pause = RefusedPause
		}
		d.next = time.Now().Add(pause/2 + rand.N(pause/2)) // jittered: workers restarted together do not come together
		if lasting(err) != nil {
			d.next = d.next.Add(pause / 2)
		}
		d.running, d.sess, d.err = false, nil, err
		n.wakeDialler()
	}()
	err = n.connect(ctx, s)
}

// news says that a failure of the attempt is to be told: the first at an address,
// another refusal than before, and otherwise one every WarnEvery. The caller holds n.mu.
func (n *Node) news(d *dial, s *session, err error) bool {
	if s.peer != nil || n.stopped || errors.Is(err, ErrForgotten) || errors.Is(err, ErrNodeClosed) {
		return false
	}
	if causeText(err) != nil && (d.err == nil || d.err.Error() != err.Error()) {
		return true
	}
	return d.warned.IsZero() || time.Since(d.warned) >= WarnEvery
}

// connect opens a connection of its own for the session and runs it.
func (n *Node) connect(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	if err := s.reason(); err != nil { // forgotten before it began
		return err
	}
	creds := n.cfg.ClientCreds
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	cc, err := grpc.NewClient("passthrough:///"+s.addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := n.cfg.DialContext(ctx, addr)
			if err == nil {
				s.own(conn)
			}
			return conn, err
		}),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(hardMessage)),
	)
	if err != nil {
		return err
	}
	defer cc.Close()
	// Before cc.Close, which otherwise waits for a peer that does not read.
	defer func() { s.close(errors.New("session ended")) }()
	open := time.AfterFunc(HelloTimeout, func() { s.close(errors.New("no connection in time")) })
	st, err := cc.NewStream(ctx, &serviceDesc.Streams[0], sessionMethod)
	open.Stop()
	if err != nil {
		return s.because(err)
	}
	s.stream = st
	return s.run()
}
