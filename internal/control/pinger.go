package control

import (
	"context"
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/svc"
)

// pinger sends PINGs and judges silence on a clock of its own, so that neither
// depends on the readers and writers that it judges.
func (n *Node) pinger(ctx context.Context, l *svc.Loop) error {
	next := n.now() + int64(PingEvery)
	timer := time.NewTimer(PingEvery)
	defer timer.Stop()
	for seq := uint64(1); ; seq++ {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := n.now()
		// The tick came late by as much as this process did not run: no peer
		// could be heard meanwhile.
		if late := now - next; late > 0 {
			n.lag.Add(late)
		}
		next = now + int64(PingEvery)
		for _, p := range n.remotes() {
			n.judge(p, now, seq)
		}
		n.forgetFenced()
		l.Progress()
		timer.Reset(PingEvery)
	}
}

func (n *Node) judge(p *remote, now int64, seq uint64) {
	s := n.sessionOf(p)
	if s != nil {
		if s.stalled(now) {
			s.close(fmt.Errorf("%w for %v", ErrStalled, WriteTimeout))
		}
		s.post(func(m *mail) { m.ping, m.pingSeq, m.pingAt = true, seq, now })
	}
	silence := p.silence(n, now)
	if silence < SuspectAfter {
		return
	}
	// A handler that does not return must not stop the pinger for the other
	// peers: this one is judged at the next tick.
	if !p.callMu.TryLock() {
		return
	}
	defer p.callMu.Unlock()
	if silence = p.silence(n, n.now()); silence >= FenceAfter {
		n.fenceLocked(p, fmt.Errorf("%w: silent for %v", ErrFenced, silence.Round(time.Millisecond)))
	} else if silence >= SuspectAfter {
		n.setState(p, Alive, Suspect)
	}
}

func (n *Node) forgetFenced() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for inc, f := range n.fenced {
		if time.Since(f.at) > fenceMemory {
			delete(n.fenced, inc)
		}
	}
}
