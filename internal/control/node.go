package control

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

// Node is one worker's end of all its sessions.
type Node struct {
	cfg    Config
	g      *svc.Group
	base   time.Time    // the monotonic zero of every time below
	lag    atomic.Int64 // ns by which our own pinger was late, summed up
	ending atomic.Bool  // Run or Serve was asked to end: what ends from now on is meant to
	drops  drops        // of all peers, and of connections that never became one

	mu      sync.Mutex
	peers   map[id.Incarnation]*remote
	fenced  map[id.Incarnation]fencedPeer
	dials   map[string]*dial
	stopped bool
	drain   bool
	redial  chan struct{} // one token: the dialler has something to look at
}

type fencedPeer struct {
	at     time.Time
	status PeerStatus
}

// New returns a node that is idle until Run and Serve. It panics if a required
// field of cfg is missing: that is a fault of the program.
func New(cfg Config) *Node {
	if cfg.Self == 0 || cfg.Hello == nil || cfg.Handler == nil {
		panic("control: Config needs Self, Hello and Handler")
	}
	cfg = cfg.withDefaults()
	return &Node{
		cfg:    cfg,
		g:      svc.New(context.Background(), "control", cfg.Log),
		base:   time.Now(),
		peers:  map[id.Incarnation]*remote{},
		fenced: map[id.Incarnation]fencedPeer{},
		dials:  map[string]*dial{},
		redial: make(chan struct{}, 1),
	}
}

// Run owns the pinger, the dialler and every session. It returns when ctx has
// ended and all of them have; the node cannot be run again.
func (n *Node) Run(ctx context.Context) error {
	n.g.Go("pinger", n.pinger)
	n.g.Go("dialler", n.dialler)
	<-ctx.Done()

	n.Leave()
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	n.g.Stop(ErrNodeClosed)
	for _, p := range n.remotes() {
		if s := n.sessionOf(p); s != nil {
			s.close(ErrNodeClosed)
		}
	}
	n.g.Wait()
	return nil
}

// Leave tells the peers, after a drain, that this worker ends now, so that they do not
// take its silence for a death. It comes after all that is queued for them. It waits
// for their answers, but not for long. Run ends with it; who closes other connections
// to the same peers calls it before.
func (n *Node) Leave() {
	n.ending.Store(true)
	n.mu.Lock()
	drained := n.drain
	n.mu.Unlock()
	if !drained {
		return
	}
	var up []*session
	for _, p := range n.remotes() {
		if s := n.sessionOf(p); s != nil {
			s.post(func(m *mail) { m.bye = true })
			up = append(up, s)
		}
	}
	patience := time.NewTimer(GoodbyeTimeout)
	defer patience.Stop()
	for _, s := range up {
		select {
		case <-s.parted:
		case <-s.stop:
		case <-patience.C:
			return
		}
	}
}

// Group is the node's goroutines, for health.
func (n *Node) Group() *svc.Group { return n.g }

// Send queues a message for a peer. It never blocks. Returns nil: it will be
// sent, unless the peer is fenced first. Returns an error (ErrNoPeer,
// ErrOutboxFull, ErrBadMessage): it will not.
func (n *Node) Send(p id.Incarnation, m room.Message) error {
	frame := n.encode(Frame{Type: roomBase + FrameType(m.Type), Message: m})
	if frame == nil {
		return fmt.Errorf("%w: %v for room %v, generation %v", ErrBadMessage, m.Type, m.Room, m.Gen)
	}
	n.mu.Lock()
	r := n.peers[p]
	n.mu.Unlock()
	if r == nil {
		return ErrNoPeer
	}
	err := r.box.push(laneOf(m.Type), frame)
	if err == ErrOutboxFull {
		r.drops.full.add(1)
	}
	return err
}

// BroadcastDrain tells every peer, now and at each later session, that this
// worker takes no new rooms.
func (n *Node) BroadcastDrain() {
	n.mu.Lock()
	n.drain = true
	var up []*session
	for _, p := range n.peers {
		if p.sess != nil {
			up = append(up, p.sess)
		}
	}
	n.mu.Unlock()
	for _, s := range up {
		s.post(func(m *mail) { m.drain = true })
	}
}

// Reset closes the peer's session, so that its dialler makes a new one: new
// HELLOs, new tickets. Room messages that were not sent yet wait for it.
func (n *Node) Reset(p id.Incarnation, cause error) {
	n.mu.Lock()
	r := n.peers[p]
	n.mu.Unlock()
	if r == nil {
		return
	}
	if s := n.sessionOf(r); s != nil {
		s.close(fmt.Errorf("%w: %w", ErrReset, cause))
	}
}

// Peers returns the status of every peer, fenced ones included for a while.
func (n *Node) Peers() []PeerStatus {
	now := n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]PeerStatus, 0, len(n.peers)+len(n.fenced))
	for _, p := range n.peers {
		out = append(out, p.status(n, now))
	}
	for _, f := range n.fenced {
		out = append(out, f.status)
	}
	return out
}

// Drops returns what was dropped since start, from all peers and from
// connections that never became one.
func (n *Node) Drops() Drop { return n.drops.read() }

func (n *Node) encode(f Frame) []byte {
	f.From, f.Rank, f.Of = n.cfg.Self, n.cfg.Rank, n.cfg.Of
	return Encode(f)
}

// now is nanoseconds since the node's base: monotonic, never wall time.
func (n *Node) now() int64 { return int64(time.Since(n.base)) }

func (n *Node) remotes() []*remote {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*remote, 0, len(n.peers))
	for _, p := range n.peers {
		out = append(out, p)
	}
	return out
}

func (n *Node) sessionOf(p *remote) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.sess
}

// task starts a session's goroutine unless the node is stopping, so that
// nothing starts after Run began to wait.
func (n *Node) task(name string, fn func(context.Context)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return false
	}
	n.g.Task(name, fn)
	return true
}

// call runs one call of the handler; a panic in it costs that room alone.
func (n *Node) call(p *remote, rm id.Room, fn func(Handler)) {
	defer func() {
		if v := recover(); v != nil {
			p.drops.panics.add(1)
			n.cfg.Log.Error("panic in the control handler", "peer", p.inc, "room", rm,
				"value", fmt.Sprint(v), "stack", string(debug.Stack()))
			n.onPanic(p.inc, rm)
		}
	}()
	fn(n.cfg.Handler)
}

func (n *Node) onPanic(p id.Incarnation, rm id.Room) {
	if n.cfg.OnPanic == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			n.cfg.Log.Error("panic in OnPanic", "peer", p, "room", rm, "value", fmt.Sprint(v))
		}
	}()
	n.cfg.OnPanic(p, rm)
}

// hello asks for our own HELLO; a panic in the caller's function is a refusal.
func (n *Node) hello(p *Peer) (own Peer, err error) {
	defer func() {
		if v := recover(); v != nil {
			n.drops.panics.add(1)
			n.cfg.Log.Error("panic in Hello", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = room.Because(room.Bug, "this worker cannot say what it is")
		}
	}()
	return n.cfg.Hello(p)
}
