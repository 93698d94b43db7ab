package tcp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Source is the prefill side. It implements transfer.Source.
type Source struct {
	cfg    Config
	h      transfer.SourceHandler
	lis    net.Listener
	conns  *svc.Group // accept loop, readers, writers
	events *events
	counters

	mu      sync.Mutex
	tickets map[id.Incarnation]ticket
	issued  uint64
	links   map[id.Incarnation]*sourceLink
	pending map[net.Conn]struct{} // without an accepted ticket
	stopped bool
}

type ticket struct {
	t     transfer.Ticket
	order uint64
}

var _ transfer.Source = (*Source)(nil)

// NewSource binds the listener at once, so that Addr names what is really bound.
// The caller owes Run, which closes it.
func NewSource(cfg Config, h transfer.SourceHandler) (*Source, error) {
	cfg = cfg.withDefaults()
	lis := cfg.Listener
	if cfg.Self == 0 || h == nil {
		if lis != nil {
			lis.Close()
		}
		return nil, errors.New("tcp source needs Self and a handler")
	}
	if lis == nil {
		var err error
		if lis, err = net.Listen("tcp", cfg.Listen); err != nil {
			return nil, fmt.Errorf("tcp source on %s: %w", cfg.Listen, err)
		}
	}
	return &Source{
		cfg: cfg, h: h, lis: lis,
		conns:   svc.New(context.Background(), "tcp-source", cfg.Log),
		events:  newEvents(),
		tickets: map[id.Incarnation]ticket{},
		links:   map[id.Incarnation]*sourceLink{},
		pending: map[net.Conn]struct{}{},
	}, nil
}

// Name returns "tcp".
func (s *Source) Name() string { return Name }

// Addr returns what a sink dials.
func (s *Source) Addr() string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	return s.lis.Addr().String()
}

// Group is the source's goroutines, for health.
func (s *Source) Group() *svc.Group { return s.conns }

// Issue returns a new ticket; an earlier unused one of the peer is void.
func (s *Source) Issue(peer id.Incarnation) transfer.Ticket {
	var t transfer.Ticket
	rand.Read(t[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tickets[peer]; !ok && len(s.tickets) >= maxTickets {
		var oldest id.Incarnation
		for p, o := range s.tickets {
			if oldest == 0 || o.order < s.tickets[oldest].order {
				oldest = p
			}
		}
		delete(s.tickets, oldest)
	}
	s.issued++
	s.tickets[peer] = ticket{t: t, order: s.issued}
	return t
}

// Publish queues a chunk. Returns nil: the caller's hold on the lease is the
// source's until Settled. Returns an error: the caller keeps it.
func (s *Source) Publish(peer id.Incarnation, h transfer.Header, lease *kv.Lease) error {
	if err := checkHeader(h); err != nil {
		return fmt.Errorf("%w: %w", ErrHeader, err)
	}
	if h.Bytes > len(lease.Bytes()) {
		return fmt.Errorf("%w: %d bytes in a lease of %d", ErrHeader, h.Bytes, len(lease.Bytes()))
	}
	l := s.link(peer)
	if l == nil {
		return transfer.ErrNoLink
	}
	return l.publish(h, lease)
}

// Cancel settles the hand-over's chunks: at once those that are not being written,
// that one when its write has ended, or with the link.
func (s *Source) Cancel(peer id.Incarnation, room id.Room, gen id.Generation) {
	if l := s.link(peer); l != nil {
		l.cancel(room, gen)
	}
}

// Fence closes the peer's connection, voids its ticket and settles its chunks.
func (s *Source) Fence(peer id.Incarnation) {
	s.mu.Lock()
	delete(s.tickets, peer)
	l := s.links[peer]
	s.mu.Unlock()
	if l != nil {
		l.fail(transfer.ErrFenced)
	}
}

func (s *Source) link(peer id.Incarnation) *sourceLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[peer]
}

// Stats returns the counters.
func (s *Source) Stats() transfer.Stats {
	st := s.stats()
	s.mu.Lock()
	links := make([]*sourceLink, 0, len(s.links))
	for _, l := range s.links {
		links = append(links, l)
	}
	s.mu.Unlock()
	for _, l := range links {
		n, bytes := l.held()
		st.Queued += n
		st.Held += bytes
	}
	st.Links = len(links)
	return st
}

// Run serves until ctx ends, then fences every peer and returns when every
// goroutine has ended and every chunk is settled.
func (s *Source) Run(ctx context.Context) error {
	handler := svc.New(context.Background(), "tcp-source", s.cfg.Log)
	handler.Go("events", func(ctx context.Context, l *svc.Loop) error { return s.events.run(ctx, l, s.cfg.Log, s.h) })
	s.conns.Go("accept", s.accept)
	<-ctx.Done()

	s.mu.Lock()
	s.stopped = true
	links := make([]*sourceLink, 0, len(s.links))
	for _, l := range s.links {
		links = append(links, l)
	}
	for c := range s.pending {
		c.Close()
	}
	s.mu.Unlock()
	s.conns.Stop(ErrStopped)
	s.lis.Close()
	for _, l := range links {
		l.fail(transfer.ErrFenced)
	}
	s.conns.Wait()
	handler.Stop(ErrStopped) // after the last event was posted
	handler.Wait()
	return nil
}

func (s *Source) accept(ctx context.Context, l *svc.Loop) error {
	for pause := time.Duration(0); ; {
		c, err := s.lis.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // e.g. out of descriptors: it passes
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			continue
		}
		pause = 0
		l.Progress()
		if !s.admit(c) {
			s.refused.Add(1)
			c.Close()
		}
	}
}

func (s *Source) admit(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || len(s.pending) >= maxPending {
		return false
	}
	s.pending[c] = struct{}{}
	s.conns.Task("reader", func(context.Context) { s.serve(c) })
	return true
}

// serve is one connection: the handshake, then its reader.
func (s *Source) serve(c net.Conn) {
	defer c.Close()
	l, err := s.handshake(c)
	if err != nil {
		s.refused.Add(1)
		s.cfg.Log.Info("data connection refused", "from", c.RemoteAddr(), "err", err)
		return
	}
	l.run()
}

func (s *Source) handshake(c net.Conn) (*sourceLink, error) {
	defer func() {
		s.mu.Lock()
		delete(s.pending, c)
		s.mu.Unlock()
	}()
	tune(c, s.cfg.StallTimeout)
	c.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	var b [helloSize]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return nil, err
	}
	h, err := decodeHello(b[:])
	if err != nil {
		s.malformed.Add(1)
		return nil, err
	}
	l, old, err := s.redeem(c, h)
	var answer [answerSize]byte
	putAnswer(answer[:], s.cfg.Self, err == nil)
	if err != nil {
		c.Write(answer[:])
		return nil, err
	}
	if old != nil {
		old.fail(errReplaced)
		wait := time.NewTimer(replaceTimeout)
		defer wait.Stop()
		select {
		case <-old.done:
		case <-wait.C:
			l.fail(errors.New("the earlier link does not end"))
		}
	}
	s.events.post(event{kind: linkUp, peer: l.peer})
	if _, err := c.Write(answer[:]); err != nil {
		l.fail(err) // run settles what was queued meanwhile
	}
	c.SetDeadline(time.Time{})
	return l, nil
}

// redeem checks the ticket and, in the same step, uses it up and makes the link,
// so that a Fence at any moment finds one or the other.
func (s *Source) redeem(c net.Conn, h hello) (l, old *sourceLink, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, known := s.tickets[h.sink] // without one, compare with zeros all the same
	match := subtle.ConstantTimeCompare(want.t[:], h.ticket[:]) == 1
	switch {
	case s.stopped:
		return nil, nil, ErrStopped
	case h.source != s.cfg.Self:
		return nil, nil, fmt.Errorf("ticket for incarnation %v, this is %v", h.source, s.cfg.Self)
	case !known || !match:
		return nil, nil, fmt.Errorf("wrong or used ticket of incarnation %v", h.sink)
	}
	delete(s.tickets, h.sink)
	old = s.links[h.sink]
	l = newSourceLink(s, c, h.sink, h.window)
	s.links[h.sink] = l
	return l, old, nil
}
