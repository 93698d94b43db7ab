package decode

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

const (
	// LookupTimeout bounds one question to a registry.
	LookupTimeout = 2 * time.Second
	// lookupEvery is how often a registry is asked again while rooms wait for
	// its worker: a restarted worker may have other ports.
	lookupEvery = time.Second
	// openTimeout bounds the opening of a data connection.
	openTimeout = 5 * time.Second
	// idlePeer is how long a worker that nobody seeks and that is not connected is
	// still dialled.
	idlePeer = 5 * time.Minute
)

// peers knows the prefill workers by their bootstrap addresses: looks their
// control addresses up, has the sessions dialled, opens the data connections,
// and tells waiting rooms.
type peers struct {
	w    *Worker
	wake chan struct{}

	mu     sync.Mutex
	byBoot map[string]*peer
}

// peer is one prefill worker. peers.mu guards it.
type peer struct {
	bootstrap string
	control   string // "" until the registry answered
	inc       id.Incarnation
	session   bool
	link      bool // the data connection is open
	opening   bool
	suspect   bool
	asking    bool
	asked     time.Time
	sought    time.Time
	waiting   map[id.Room]struct{}
}

func (p *peer) usable() bool { return p.session && p.link && !p.suspect }

func newPeers(w *Worker) peers {
	return peers{w: w, wake: make(chan struct{}, 1), byBoot: make(map[string]*peer)}
}

// seek asks for a session with a prefill worker on behalf of a room.
func (ps *peers) seek(bootstrap string, rm id.Room) {
	ps.mu.Lock()
	p := ps.byBoot[bootstrap]
	if p == nil {
		p = &peer{bootstrap: bootstrap, waiting: make(map[id.Room]struct{})}
		ps.byBoot[bootstrap] = p
	}
	p.sought = time.Now()
	inc, usable := p.inc, p.usable()
	if !usable {
		p.waiting[rm] = struct{}{}
	}
	ps.mu.Unlock()
	if usable {
		ps.w.peerUp(rm, inc)
		return
	}
	select {
	case ps.wake <- struct{}{}:
	default:
	}
}

func (w *Worker) peerUp(rm id.Room, inc id.Incarnation) {
	gen := id.NewGeneration()
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.PeerUp(now, rm, inc, gen) })
}

// loop asks registries while rooms wait for their workers.
func (ps *peers) loop(ctx context.Context, l *svc.Loop) error {
	tick := time.NewTicker(lookupEvery)
	defer tick.Stop()
	for {
		for _, p := range ps.due(time.Now()) {
			ps.w.group.Task("lookup", func(ctx context.Context) { ps.ask(ctx, p) })
		}
		l.Beat()
		select {
		case <-ctx.Done():
			return nil
		case <-ps.wake:
		case <-tick.C:
		}
	}
}

// due returns the peers to ask for now, and forgets those nobody seeks.
func (ps *peers) due(now time.Time) (ask []*peer) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for boot, p := range ps.byBoot {
		for rm := range p.waiting {
			if !ps.w.wants(rm) {
				delete(p.waiting, rm)
			}
		}
		switch {
		case len(p.waiting) > 0 && !p.session && !p.asking && now.Sub(p.asked) >= lookupEvery:
			p.asking, p.asked = true, now
			ask = append(ask, p)
		case len(p.waiting) == 0 && !p.session && !p.asking && now.Sub(p.sought) > idlePeer:
			delete(ps.byBoot, boot)
			if p.control != "" {
				ps.w.sessions.Forget(p.control)
			}
		}
	}
	return ask
}

// ask asks a registry once and has the answer dialled.
func (ps *peers) ask(ctx context.Context, p *peer) {
	ctx, cancel := context.WithTimeout(ctx, LookupTimeout)
	defer cancel()
	addr, err := ps.w.lookup(ctx, p.bootstrap)
	ps.mu.Lock()
	p.asking = false
	old := p.control
	if err == nil {
		p.control = addr
	}
	ps.mu.Unlock()
	var refused *room.Cause
	if errors.As(err, &refused) {
		ps.giveUp(p, refused)
		return
	}
	if err != nil {
		ps.w.log.Warn("no answer from a prefill worker's registry", "bootstrap", p.bootstrap, "err", err)
		return
	}
	if old != "" && old != addr {
		ps.w.sessions.Forget(old)
	}
	ps.w.sessions.Dial(addr)
}

// giveUp fails the rooms that wait for a worker with which there will be no session.
func (ps *peers) giveUp(p *peer, why *room.Cause) {
	ps.mu.Lock()
	waiting := slices.Collect(maps.Keys(p.waiting))
	clear(p.waiting)
	ps.mu.Unlock()
	for _, rm := range waiting {
		ps.w.fail(rm, why)
	}
}

// find returns the peers at a control address or with an incarnation.
func (ps *peers) find(match func(*peer) bool) (found []*peer) {
	for _, p := range ps.byBoot {
		if match(p) {
			found = append(found, p)
		}
	}
	return found
}

// sessions is what the worker hears of prefill workers' sessions.
type sessions struct{ w *Worker }

// Control returns the worker's ear for control.Config.Handler.
func (w *Worker) Control() control.Handler { return sessions{w} }

// SessionUp opens the data connection that belongs to a new session, unless the
// one of before is still open.
func (s sessions) SessionUp(hello control.Peer) {
	ps := &s.w.peers
	ps.mu.Lock()
	open := false
	for _, p := range ps.find(func(p *peer) bool { return p.control == hello.Addr }) {
		if p.inc != hello.Incarnation {
			p.inc, p.link, p.opening = hello.Incarnation, false, false
		}
		p.session, p.suspect = true, false
		if !p.link && !p.opening {
			p.opening, open = true, true
		}
	}
	ps.mu.Unlock()
	if open {
		s.w.group.Task("open-link", func(ctx context.Context) { s.open(ctx, hello) })
		return
	}
	ps.announce(hello.Incarnation)
}

// open opens the data connection with the session's ticket. Without one the
// session is of no use: it is reset, and the next one brings another ticket.
func (s sessions) open(ctx context.Context, hello control.Peer) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	sink := s.w.sink
	err := error(room.Because(room.Protocol, "the prefill worker offers no transport %q", sink.Name()))
	for _, t := range hello.Transports {
		if t.Name == sink.Name() {
			err = sink.Open(ctx, hello.Incarnation, t.Addr, t.Ticket)
		}
	}
	ps := &s.w.peers
	ps.mu.Lock()
	for _, p := range ps.find(func(p *peer) bool { return p.inc == hello.Incarnation }) {
		p.opening, p.link = false, err == nil
	}
	ps.mu.Unlock()
	if err != nil {
		s.w.log.Warn("no data connection to a prefill worker", "peer", hello.Incarnation, "err", err)
		s.w.sessions.Reset(hello.Incarnation, err)
		return
	}
	ps.announce(hello.Incarnation)
}

// announce tells every room that waits for a peer, or is bound to it, that it is up.
func (ps *peers) announce(inc id.Incarnation) {
	ps.mu.Lock()
	var rooms []id.Room
	for _, p := range ps.find(func(p *peer) bool { return p.inc == inc && p.usable() }) {
		for rm := range p.waiting {
			rooms = append(rooms, rm)
			delete(p.waiting, rm)
		}
	}
	ps.mu.Unlock()
	ps.w.keeper.Look(func(b *room.Book) { rooms = append(rooms, b.BoundTo(inc)...) })
	for _, rm := range rooms {
		ps.w.peerUp(rm, inc)
	}
}

// SessionDown changes nothing before the fence but that new rooms wait.
func (s sessions) SessionDown(inc id.Incarnation, _ error) {
	s.w.peers.set(inc, func(p *peer) { p.session = false })
}

// PeerState: a suspect peer gets no new rooms, a fenced one's rooms end.
func (s sessions) PeerState(inc id.Incarnation, state control.State) {
	switch state {
	case control.Alive:
		s.w.peers.set(inc, func(p *peer) { p.suspect = false })
		s.w.peers.announce(inc)
	case control.Suspect:
		s.w.peers.set(inc, func(p *peer) { p.suspect = true })
	case control.Fenced:
		s.w.peers.set(inc, func(p *peer) { p.session, p.link, p.suspect = false, false, false })
		// First, or the rooms would end by their data connection's loss.
		s.w.peerDown(inc, room.Because(room.PeerGone, "the prefill worker %v is gone", inc))
		s.w.sink.Close(inc)
	}
}

// Message takes one room message.
func (s sessions) Message(inc id.Incarnation, m room.Message) {
	s.w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Message(now, inc, m) })
}

// Drain: the router stops choosing the prefill worker; its rooms finish.
func (s sessions) Drain(id.Incarnation) {}

// Panicked fails the room whose message made a handler panic.
func (w *Worker) Panicked(_ id.Incarnation, rm id.Room) {
	if rm != 0 {
		w.fail(rm, room.Because(room.Bug, "a message of this room made its handler panic"))
	}
}

func (ps *peers) linkDown(inc id.Incarnation) { ps.set(inc, func(p *peer) { p.link = false }) }

func (ps *peers) set(inc id.Incarnation, f func(*peer)) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.find(func(p *peer) bool { return p.inc == inc }) {
		f(p)
	}
}

// Usable returns how many prefill workers are known and how many of them can be
// used now.
func (w *Worker) Usable() (known, usable int) {
	w.peers.mu.Lock()
	defer w.peers.mu.Unlock()
	for _, p := range w.peers.byBoot {
		known++
		if p.usable() {
			usable++
		}
	}
	return known, usable
}
