package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// remote is one peer incarnation, from its first HELLO to its fence. It
// outlives its sessions, and its outbox with it.
type remote struct {
	inc   id.Incarnation
	box   *outbox
	drops drops

	heard    atomic.Int64 // Node.now of the last good frame
	lagThen  atomic.Int64 // Node.lag at that moment
	rtt      atomic.Int64
	sent     atomic.Uint64
	received atomic.Uint64

	// callMu makes the handler's calls about this peer come one at a time, and
	// makes "this session is current" and the call one step. It is taken before
	// Node.mu, and never while a network call runs.
	callMu sync.Mutex

	// Under Node.mu.
	info     Peer
	sess     *session // nil between sessions
	state    State
	since    time.Time
	draining bool
	leaving  bool // it said goodbye: when its session ends it is gone
	sessions uint64
}

// hear notes that the peer talked.
func (p *remote) hear(n *Node) {
	p.heard.Store(n.now())
	p.lagThen.Store(n.lag.Load())
}

// silence is how long the peer said nothing, less the time in which we
// ourselves did not run and so could not have heard it.
func (p *remote) silence(n *Node, now int64) time.Duration {
	s := now - p.heard.Load() - (n.lag.Load() - p.lagThen.Load())
	return time.Duration(max(s, 0))
}

// status is called under Node.mu.
func (p *remote) status(n *Node, now int64) PeerStatus {
	frames, bytes := p.box.size()
	return PeerStatus{
		Incarnation: p.inc, Addr: p.info.Addr, Build: p.info.Build,
		State: p.state, Since: p.since, Connected: p.sess != nil, Draining: p.draining,
		Sessions: p.sessions, Silence: p.silence(n, now), RTT: time.Duration(p.rtt.Load()),
		OutboxBytes: bytes, OutboxFrames: frames,
		Sent: p.sent.Load(), Received: p.received.Load(), Drops: p.drops.read(),
	}
}

// prepare ends what an incarnation's new HELLO makes void: its earlier session,
// what it had with us if it says that it fenced us, and the incarnation that
// answered at this address before. It comes before Config.Hello, so that a
// ticket issued there is not voided by the fence.
func (n *Node) prepare(s *session, f Frame) error {
	if f.From == n.cfg.Self {
		return room.Because(room.Protocol, "this worker called itself, or another has the same incarnation %v", f.From)
	}
	if s.dial != nil {
		n.mu.Lock()
		old := n.peers[s.dial.last]
		changed := s.dial.last != 0 && s.dial.last != f.From
		s.dial.last = f.From
		n.mu.Unlock()
		n.mu.Lock()
		// A worker that is still reached by another address is not gone.
		elsewhere := old != nil && old.sess != nil && old.sess.dial != s.dial
		n.mu.Unlock()
		if changed && old != nil && !elsewhere {
			n.fence(old, fmt.Errorf("%w: %s is now incarnation %v", ErrFenced, s.addr, f.From))
		}
	}
	n.mu.Lock()
	p := n.peers[f.From]
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	if f.Fenced == n.cfg.Self {
		n.fence(p, fmt.Errorf("%w: by the peer", ErrFenced))
		return nil
	}
	return n.replace(p)
}

// replace ends the current session of p, if any, and waits for its goroutines,
// so that two writers never share one outbox.
func (n *Node) replace(p *remote) error {
	old := n.sessionOf(p)
	if old == nil {
		return nil
	}
	old.close(ErrReplaced)
	n.detach(p, old, ErrReplaced)
	wait := time.NewTimer(ReplaceTimeout)
	defer wait.Stop()
	select {
	case <-old.done:
		return nil
	case <-wait.C:
		return errors.New("the earlier session does not end")
	}
}

// attach makes s the peer's session and calls SessionUp.
func (n *Node) attach(s *session, info Peer) (*remote, error) {
	for {
		n.mu.Lock()
		p := n.peers[info.Incarnation]
		if p == nil {
			if len(n.peers) >= 2*n.cfg.MaxSessions {
				n.mu.Unlock()
				return nil, room.Because(room.QueueFull, "%d peers, at most %d", len(n.peers), 2*n.cfg.MaxSessions)
			}
			p = &remote{inc: info.Incarnation, box: newOutbox(n.cfg.Outbox), since: time.Now()}
			p.drops.under(&n.drops)
			p.hear(n)
			n.peers[info.Incarnation] = p
		}
		n.mu.Unlock()

		if err := n.replace(p); err != nil {
			return nil, err
		}
		if up, err := n.tryAttach(p, s, info); up || err != nil {
			return p, err
		}
	}
}

func (n *Node) tryAttach(p *remote, s *session, info Peer) (bool, error) {
	p.callMu.Lock()
	defer p.callMu.Unlock()
	n.mu.Lock()
	if n.stopped {
		n.mu.Unlock()
		return false, ErrNodeClosed
	}
	if p.state == Fenced || p.sess != nil {
		n.mu.Unlock()
		return false, nil // fenced, or another session came first: look again
	}
	back := p.state == Suspect
	if back {
		p.since = time.Now()
	}
	p.info, p.sess, p.state, p.draining, p.leaving = info, s, Alive, false, false
	p.sessions++
	p.hear(n)
	delete(n.fenced, info.Incarnation)
	n.mu.Unlock()
	s.peer = p
	if back {
		n.call(p, 0, func(h Handler) { h.PeerState(p.inc, Alive) })
	}
	n.call(p, 0, func(h Handler) { h.SessionUp(info) })
	return true, nil
}

// detach calls SessionDown if s is still the peer's session.
func (n *Node) detach(p *remote, s *session, err error) {
	p.callMu.Lock()
	defer p.callMu.Unlock()
	n.mu.Lock()
	current := p.sess == s
	if current {
		p.sess = nil
	}
	n.mu.Unlock()
	if current {
		n.call(p, 0, func(h Handler) { h.SessionDown(p.inc, err) })
	}
}

// setState moves a live peer between Alive and Suspect. The caller holds callMu.
func (n *Node) setState(p *remote, from, to State) {
	n.mu.Lock()
	moved := p.state == from
	if moved {
		p.state, p.since = to, time.Now()
	}
	n.mu.Unlock()
	if moved {
		n.cfg.Log.Info("peer state", "peer", p.inc, "addr", p.info.Addr, "state", to)
		n.call(p, 0, func(h Handler) { h.PeerState(p.inc, to) })
	}
}

// fence ends a peer for good: its session, its outbox, its record.
func (n *Node) fence(p *remote, why error) {
	p.callMu.Lock()
	defer p.callMu.Unlock()
	n.fenceLocked(p, why)
}

func (n *Node) fenceLocked(p *remote, why error) {
	now := n.now()
	n.mu.Lock()
	if p.state == Fenced {
		n.mu.Unlock()
		return
	}
	s := p.sess
	p.state, p.since, p.sess = Fenced, time.Now(), nil
	delete(n.peers, p.inc)
	n.mu.Unlock()

	p.drops.fence.add(uint64(p.box.close()))
	n.mu.Lock()
	n.remember(p, now)
	n.mu.Unlock()
	level := slog.LevelWarn
	if errors.Is(why, ErrLeft) {
		level = slog.LevelDebug
	}
	n.cfg.Log.Log(context.Background(), level, "peer fenced", "peer", p.inc, "addr", p.info.Addr, "why", why)
	if s != nil {
		s.close(why)
		n.call(p, 0, func(h Handler) { h.SessionDown(p.inc, why) })
	}
	n.call(p, 0, func(h Handler) { h.PeerState(p.inc, Fenced) })
}

// left reports whether the peer said goodbye and has no session any more: it is gone,
// and nothing is to be waited for.
func (n *Node) left(p *remote) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.leaving && p.draining && p.sess == nil
}

// depart fences a peer that left, unless it has come back meanwhile.
func (n *Node) depart(p *remote) {
	p.callMu.Lock()
	defer p.callMu.Unlock()
	if n.left(p) {
		n.fenceLocked(p, ErrLeft)
	}
}

// remember keeps a fenced peer's status, so that it is told if it returns.
func (n *Node) remember(p *remote, now int64) {
	if len(n.fenced) >= maxFenced {
		var oldest id.Incarnation
		for inc, f := range n.fenced {
			if oldest == 0 || f.at.Before(n.fenced[oldest].at) {
				oldest = inc
			}
		}
		delete(n.fenced, oldest)
	}
	n.fenced[p.inc] = fencedPeer{at: time.Now(), status: p.status(n, now)}
}

// fencedMark is what our HELLO says about an incarnation.
func (n *Node) fencedMark(inc id.Incarnation) id.Incarnation {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.fenced[inc]; ok {
		return inc
	}
	return 0
}
