package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Sink is the decode side. It implements transfer.Sink.
type Sink struct {
	cfg Config
	h   transfer.SinkHandler
	g   *svc.Group
	counters

	mu      sync.Mutex
	links   map[id.Incarnation]*sinkLink
	stopped bool
}

var _ transfer.Sink = (*Sink)(nil)

// NewSink returns a sink without links. The caller owes Run.
func NewSink(cfg Config, h transfer.SinkHandler) (*Sink, error) {
	cfg = cfg.withDefaults()
	if cfg.Self == 0 || h == nil {
		return nil, errors.New("tcp sink needs Self and a handler")
	}
	return &Sink{cfg: cfg, h: h, g: svc.New(context.Background(), "tcp-sink", cfg.Log), links: map[id.Incarnation]*sinkLink{}}, nil
}

// Name returns "tcp".
func (s *Sink) Name() string { return Name }

// Group is the sink's goroutines, for health.
func (s *Sink) Group() *svc.Group { return s.g }

// Open connects, presents the ticket and starts reading. An earlier link to the
// same peer is closed first, and its LinkDown comes before Open returns.
func (s *Sink) Open(ctx context.Context, peer id.Incarnation, addr string, t transfer.Ticket) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(s.g.Context(), cancel)()
	if err := s.closeAndWait(ctx, peer); err != nil {
		return err
	}
	c, err := s.cfg.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("data connection to %s: %w", addr, err)
	}
	if err := s.handshake(ctx, c, peer, t); err != nil {
		c.Close()
		return fmt.Errorf("data connection to %s: %w", addr, err)
	}
	l := newSinkLink(s, c, peer)
	for {
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			c.Close()
			return ErrStopped
		}
		if s.links[peer] == nil {
			s.links[peer] = l
			l.running.Store(2)
			s.g.Task("writer", func(context.Context) { l.end(l.write) })
			s.g.Task("reader", func(context.Context) { l.end(l.read) })
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if err := s.closeAndWait(ctx, peer); err != nil { // another Open came first; the later ticket wins
			c.Close()
			return err
		}
	}
}

func (s *Sink) closeAndWait(ctx context.Context, peer id.Incarnation) error {
	l := s.link(peer)
	if l == nil {
		return nil
	}
	l.fail(errReplaced)
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the earlier link does not end: %w", ctx.Err())
	}
}

func (s *Sink) handshake(ctx context.Context, c net.Conn, peer id.Incarnation, t transfer.Ticket) error {
	tune(c, s.cfg.StallTimeout)
	end, _ := ctx.Deadline()
	c.SetDeadline(end)
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	var b [helloSize]byte
	putHello(b[:], hello{sink: s.cfg.Self, source: peer, window: s.cfg.Window, ticket: t})
	if _, err := c.Write(b[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:answerSize]); err != nil {
		return err
	}
	from, ok, err := decodeAnswer(b[:answerSize])
	switch {
	case err != nil:
		s.malformed.Add(1)
		return err
	case from != peer:
		s.refused.Add(1)
		return fmt.Errorf("incarnation %v answers, not %v", from, peer)
	case !ok:
		s.refused.Add(1)
		return ErrRefused
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return c.SetDeadline(time.Time{})
}

// Ack tells the source that the sink is finished with a chunk that arrived.
func (s *Sink) Ack(peer id.Incarnation, h transfer.Header) {
	if l := s.link(peer); l != nil {
		l.ack(keyOf(h))
	}
}

// Cancel gives the lease of a chunk of that hand-over back while it is read.
func (s *Sink) Cancel(peer id.Incarnation, room id.Room, gen id.Generation) {
	if l := s.link(peer); l != nil {
		l.cancel(room, gen)
	}
}

// Close ends the peer's connection. LinkDown follows.
func (s *Sink) Close(peer id.Incarnation) {
	if l := s.link(peer); l != nil {
		l.fail(errClosed)
	}
}

func (s *Sink) link(peer id.Incarnation) *sinkLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[peer]
}

// Stats returns the counters.
func (s *Sink) Stats() transfer.Stats {
	st := s.stats()
	s.mu.Lock()
	st.Links = len(s.links)
	s.mu.Unlock()
	return st
}

// Run lives until ctx ends, then closes every link and joins its goroutines.
func (s *Sink) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.stopped = true
	links := make([]*sinkLink, 0, len(s.links))
	for _, l := range s.links {
		links = append(links, l)
	}
	s.mu.Unlock()
	s.g.Stop(ErrStopped)
	for _, l := range links {
		l.fail(ErrStopped)
	}
	s.g.Wait()
	return nil
}
