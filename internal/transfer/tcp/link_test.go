package tcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// heard collects what a handler hears, for tests that play one end by hand.
type heard struct {
	settled chan error
	up      chan struct{}
	down    chan error
	arena   *kv.Arena
	arrived chan error
}

func newHeard() *heard {
	return &heard{settled: make(chan error, 1000), up: make(chan struct{}, 10), down: make(chan error, 10), arrived: make(chan error, 1000)}
}

func (h *heard) Settled(_ id.Incarnation, _ transfer.Header, err error) { h.settled <- err }
func (h *heard) LinkUp(id.Incarnation)                                  { h.up <- struct{}{} }
func (h *heard) LinkDown(_ id.Incarnation, err error)                   { h.down <- err }
func (h *heard) Accept(_ id.Incarnation, x transfer.Header) *kv.Lease {
	l, _ := h.arena.Alloc(x.Bytes, "sink")
	return l
}
func (h *heard) Arrived(_ id.Incarnation, _ transfer.Header, l *kv.Lease, err error) {
	l.Release()
	h.arrived <- err
}

func get[T any](t *testing.T, c chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("never: %s", what)
		panic("unreachable")
	}
}

const srcID, snkID id.Incarnation = 0xA, 0xD

func newArena(t *testing.T, n int) *kv.Arena {
	t.Helper()
	a, err := kv.NewArena(kv.ArenaConfig{Bytes: n, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func running(t *testing.T, fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { fn(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// source runs a Source and returns a raw connection that presented a ticket.
func source(t *testing.T, window int64, stall time.Duration) (*Source, *heard, net.Conn, *kv.Arena) {
	t.Helper()
	a := newArena(t, 32<<20)
	h := newHeard()
	s, err := NewSource(Config{Self: srcID, Debug: true, StallTimeout: stall, Log: slog.New(slog.DiscardHandler)}, h)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s.Run)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	var b [helloSize]byte
	putHello(b[:], hello{sink: snkID, source: srcID, window: window, ticket: s.Issue(snkID)})
	c.Write(b[:])
	if _, err := io.ReadFull(c, b[:answerSize]); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := decodeAnswer(b[:answerSize]); !ok || err != nil {
		t.Fatalf("answer %v, %v", ok, err)
	}
	get(t, h.up, "LinkUp")
	return s, h, c, a
}

func publish(t *testing.T, s *Source, a *kv.Arena, seq uint32, n int) {
	t.Helper()
	l, err := a.Alloc(n, "source")
	if err != nil {
		t.Fatal(err)
	}
	h := sample()
	h.Seq, h.Bytes = seq, n
	if err := s.Publish(snkID, h, l); err != nil {
		t.Fatal(err)
	}
}

func readChunk(t *testing.T, c net.Conn) transfer.Header {
	t.Helper()
	var b [chunkSize]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		t.Fatal(err)
	}
	_, h, err := decodeChunk(b[:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, int64(h.Bytes)); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestASinkThatTakesNoByteLosesTheLink(t *testing.T) {
	s, h, _, a := source(t, 1<<30, 200*time.Millisecond)
	publish(t, s, a, 0, 24<<20) // more than two kernels buffer
	if err := get(t, h.settled, "the chunk settled"); !errors.Is(err, transfer.ErrLinkDown) {
		t.Errorf("settled with %v", err)
	}
	if err := get(t, h.down, "LinkDown"); !errors.Is(err, errStalled) {
		t.Errorf("link down: %v", err)
	}
}

func TestASinkThatReturnsNoCreditLosesTheLink(t *testing.T) {
	s, h, c, a := source(t, 1000, 200*time.Millisecond)
	publish(t, s, a, 0, 1000)
	publish(t, s, a, 1, 1000)
	readChunk(t, c)
	if err := get(t, h.down, "LinkDown"); !errors.Is(err, errStalled) {
		t.Errorf("link down: %v", err)
	}
	get(t, h.settled, "the first")
	get(t, h.settled, "the second")
}

func TestNothingIsSentBeyondTheCredit(t *testing.T) {
	s, h, c, a := source(t, 1000, 5*time.Second)
	publish(t, s, a, 0, 600)
	publish(t, s, a, 1, 600)
	publish(t, s, a, 2, 5000) // longer than the window: alone, when all of it is free
	readChunk(t, c)
	for seq, n := range []uint64{600, 600} {
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 {
			t.Fatalf("the source sends without credit: %v", err)
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		c.Write(appendReply(nil, reply{typ: typeCredit, from: snkID, value: n}))
		if x := readChunk(t, c); x.Seq != uint32(seq+1) {
			t.Errorf("chunk %d, want %d", x.Seq, seq+1)
		}
	}
	for seq := range uint64(3) {
		c.Write(appendReply(nil, reply{typ: typeAck, from: snkID, room: 77, gen: 88, value: seq}))
		if err := get(t, h.settled, "the ACK"); err != nil {
			t.Error(err)
		}
	}
}

func TestAnIdleLinkIsNotAStalledOne(t *testing.T) {
	s, h, c, a := source(t, 1000, 20*time.Millisecond)
	publish(t, s, a, 0, 1000)
	readChunk(t, c)
	c.Write(appendReply(nil, reply{typ: typeCredit, from: snkID, value: 1000}))
	select { // not acknowledged: how long that may take is not the transport's to judge
	case err := <-h.down:
		t.Fatalf("link down: %v", err)
	case <-time.After(400 * time.Millisecond):
	}
	c.Write(appendReply(nil, reply{typ: typeAck, from: snkID, room: 77, gen: 88, value: 0}))
	if err := get(t, h.settled, "the ACK"); err != nil {
		t.Error(err)
	}
}

func TestRepliesThatCannotBeCloseTheLink(t *testing.T) {
	for name, b := range map[string][]byte{
		"credit for what was not sent": appendReply(nil, reply{typ: typeCredit, from: snkID, value: 1}),
		"another incarnation's":        appendReply(nil, reply{typ: typeAck, from: 0xBAD, room: 77, gen: 88}),
		"no frame":                     make([]byte, replySize),
	} {
		t.Run(name, func(t *testing.T) {
			s, h, c, a := source(t, 1000, time.Second)
			publish(t, s, a, 0, 0) // costs no credit
			c.Write(b)
			get(t, h.down, "LinkDown")
			if err := get(t, h.settled, "the chunk"); !errors.Is(err, transfer.ErrLinkDown) {
				t.Error(err)
			}
			if n := s.Stats().Malformed; n != 1 {
				t.Errorf("malformed %d", n)
			}
		})
	}
}

func TestAnAckDuringTheWriteFreesNothingBeforeItsEnd(t *testing.T) {
	s, h, c, a := source(t, 1<<30, 5*time.Second)
	publish(t, s, a, 0, 24<<20)
	var b [chunkSize]byte
	io.ReadFull(c, b[:]) // the write has begun, and cannot end
	c.Write(appendReply(nil, reply{typ: typeAck, from: snkID, room: 77, gen: 88, value: 0}))
	select {
	case <-h.settled:
		t.Fatal("settled while the writer reads the lease")
	case <-time.After(100 * time.Millisecond):
	}
	io.CopyN(io.Discard, c, 24<<20)
	if err := get(t, h.settled, "the ACK"); err != nil {
		t.Error(err)
	}
}

// fakeSource accepts one sink and returns the connection.
func fakeSource(t *testing.T) (*Sink, *heard, net.Conn) {
	t.Helper()
	h := newHeard()
	h.arena = newArena(t, 1<<20)
	k, err := NewSink(Config{Self: snkID, Debug: true, Window: 1000, StallTimeout: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}, h)
	if err != nil {
		t.Fatal(err)
	}
	running(t, k.Run)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	conn := make(chan net.Conn, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := lis.Accept()
		if err != nil {
			return
		}
		var b [helloSize]byte
		io.ReadFull(c, b[:])
		putAnswer(b[:answerSize], srcID, true)
		c.Write(b[:answerSize])
		conn <- c
	})
	if err := k.Open(t.Context(), srcID, lis.Addr().String(), transfer.Ticket{}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	c := <-conn
	t.Cleanup(func() { c.Close() })
	return k, h, c
}

func TestASourceThatBreaksTheRulesLosesTheLink(t *testing.T) {
	chunk := func(seq uint32, n int) []byte {
		h := sample()
		h.Seq, h.Bytes = seq, n
		b := make([]byte, chunkSize, chunkSize+n)
		putChunk(b, srcID, h)
		return b
	}
	huge := chunk(0, 0)
	le.PutUint64(huge[40:], 1<<62)
	other := chunk(0, 10)
	le.PutUint64(other[8:], 0xBAD)
	for name, b := range map[string][]byte{
		"no frame":             make([]byte, chunkSize),
		"a length of 2^62":     huge,
		"another incarnation":  other,
		"the same chunk twice": append(chunk(0, 0), chunk(0, 0)...),
	} {
		t.Run(name, func(t *testing.T) {
			k, h, c := fakeSource(t)
			c.Write(b)
			get(t, h.down, "LinkDown")
			if n := k.Stats().Malformed; n != 1 {
				t.Errorf("malformed %d", n)
			}
		})
	}
}

func TestCreditIsCounted(t *testing.T) {
	l := newSinkLink(&Sink{cfg: Config{Window: 1000, Debug: true}}, nil, srcID)
	h := sample()
	h.Bytes = 600
	if err := l.announce(h); err != nil {
		t.Fatal(err)
	}
	h.Seq++
	if err := l.announce(h); err == nil {
		t.Error("1200 bytes within a window of 1000")
	}
	l.took(600)
	l.news(nil)
	h.Bytes = 5000
	if err := l.announce(h); err != nil {
		t.Errorf("a long chunk with the whole window free: %v", err)
	}
}

func TestAChunkThatStopsHalfWayComesAsIncomplete(t *testing.T) {
	_, h, c := fakeSource(t)
	x := sample()
	x.Bytes = 1000
	b := make([]byte, chunkSize+500)
	putChunk(b[:chunkSize], srcID, x)
	c.Write(b)
	if err := get(t, h.arrived, "Arrived"); !errors.Is(err, errStalled) {
		t.Errorf("arrived with %v", err)
	}
	get(t, h.down, "LinkDown")
}

func BenchmarkLoopback(b *testing.B) {
	const size, inFlight = 4 << 20, 16
	a, err := kv.NewArena(kv.ArenaConfig{Bytes: 2*inFlight*size + 1<<20})
	if err != nil {
		b.Fatal(err)
	}
	sh := newHeard()
	src, _ := NewSource(Config{Self: srcID}, sh)
	kh := &acker{arena: a}
	snk, _ := NewSink(Config{Self: snkID, Window: 32 << 20}, kh)
	kh.snk = snk
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { src.Run(ctx) })
	wg.Go(func() { snk.Run(ctx) })
	defer func() { cancel(); wg.Wait(); a.Close() }()
	if err := snk.Open(ctx, srcID, src.Addr(), src.Issue(snkID)); err != nil {
		b.Fatal(err)
	}
	<-sh.up
	b.SetBytes(size)
	b.ReportAllocs()
	open := 0
	var seq uint32
	for b.Loop() {
		if open == inFlight {
			<-sh.settled
			open--
		}
		l, err := a.Alloc(size, "source")
		if err != nil {
			b.Fatal(err)
		}
		h := sample()
		h.Seq, h.Bytes = seq, size
		seq++
		if err := src.Publish(snkID, h, l); err != nil {
			b.Fatal(err)
		}
		open++
	}
	for ; open > 0; open-- {
		<-sh.settled
	}
}

type acker struct {
	arena *kv.Arena
	snk   *Sink
}

func (k *acker) Accept(_ id.Incarnation, h transfer.Header) *kv.Lease {
	l, _ := k.arena.Alloc(h.Bytes, "sink")
	return l
}
func (k *acker) Arrived(p id.Incarnation, h transfer.Header, l *kv.Lease, err error) {
	l.Release()
	k.snk.Ack(p, h)
}
func (k *acker) LinkDown(id.Incarnation, error) {}

func TestANewConnectionOfTheSamePeerEndsTheOldOne(t *testing.T) {
	s, h, old, a := source(t, 1000, 5*time.Second) // a half-open one: the sink knows nothing of it any more
	publish(t, s, a, 0, 100)
	readChunk(t, old)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b [helloSize]byte
	putHello(b[:], hello{sink: snkID, source: srcID, window: 1000, ticket: s.Issue(snkID)})
	c.Write(b[:])
	if err := get(t, h.down, "LinkDown of the old one"); !errors.Is(err, errReplaced) {
		t.Errorf("link down: %v", err)
	}
	if err := get(t, h.settled, "its chunk"); !errors.Is(err, transfer.ErrLinkDown) {
		t.Error(err)
	}
	get(t, h.up, "LinkUp of the new one")
	publish(t, s, a, 1, 100)
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	io.ReadFull(c, b[:answerSize])
	readChunk(t, c)
}
