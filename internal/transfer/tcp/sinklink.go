package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

var errShortLease = errors.New("the lease is shorter than the chunk")

// sinkLink is the connection to one source.
type sinkLink struct {
	s       *Sink
	c       net.Conn
	peer    id.Incarnation
	wake    chan struct{} // one token: something to tell the source
	stop    chan struct{}
	done    chan struct{} // closed after LinkDown
	running atomic.Int32
	scratch []byte // the reader's, for what is discarded

	mu    sync.Mutex
	under *reading         // the chunk whose payload is read into a lease; nil between them
	held  map[key]struct{} // arrived, and not acknowledged
	acks  []key            // to be told
	// Free, unread and owed are the window: granted, announced by a CHUNK and
	// not read, read and not yet returned by a CREDIT.
	free, unread, owed int64
	err                error
}

func newSinkLink(s *Sink, c net.Conn, peer id.Incarnation) *sinkLink {
	return &sinkLink{s: s, c: c, peer: peer, free: s.cfg.Window, held: map[key]struct{}{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

func (l *sinkLink) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
		close(l.stop)
	}
	l.mu.Unlock()
	if first {
		l.c.Close()
	}
}

func (l *sinkLink) end(half func() error) {
	err := errors.New("panic in the link")
	defer func() {
		l.fail(err)
		if l.running.Add(-1) == 0 {
			l.finish()
		}
	}()
	err = half()
}

func (l *sinkLink) finish() {
	l.s.mu.Lock()
	if l.s.links[l.peer] == l {
		delete(l.s.links, l.peer)
	}
	l.s.mu.Unlock()
	defer close(l.done)
	defer recovered(l.s.cfg.Log, "sink handler")
	l.s.h.LinkDown(l.peer, l.err)
}

func (l *sinkLink) read() error {
	var b [chunkSize]byte
	for {
		if _, err := io.ReadFull(l.c, b[:]); err != nil { // between chunks a link may be idle for ever
			return err
		}
		from, h, err := decodeChunk(b[:])
		if err == nil && from != l.peer {
			err = fmt.Errorf("chunk of incarnation %v on the link of %v", from, l.peer)
		}
		if err == nil {
			err = l.announce(h)
		}
		if err != nil {
			l.s.malformed.Add(1)
			return err
		}
		if err := l.payload(h); err != nil {
			return err
		}
		if err := l.c.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// announce books a chunk's bytes, or says why the source may not send it.
func (l *sinkLink) announce(h transfer.Header) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(h.Bytes)
	if n > l.free && l.free < l.s.cfg.Window {
		return fmt.Errorf("chunk of %d bytes with a credit of %d", n, l.free)
	}
	if _, dup := l.held[keyOf(h)]; dup {
		return fmt.Errorf("chunk %d of room %v came twice", h.Seq, h.Room)
	}
	if len(l.held)+len(l.acks) >= maxHeld {
		return fmt.Errorf("more than %d chunks without an acknowledgement", maxHeld)
	}
	l.free -= n
	l.unread += n
	l.check()
	return nil
}

// payload reads exactly h.Bytes, into the handler's lease or away.
func (l *sinkLink) payload(h transfer.Header) error {
	lease := l.accept(h)
	if lease == nil {
		if err := l.discard(h.Bytes); err != nil {
			return err
		}
		l.s.discarded.Add(1)
		l.tell(h)
		return nil
	}
	if h.Bytes > len(lease.Bytes()) {
		err := l.discard(h.Bytes)
		if err == nil {
			l.tell(h)
		}
		l.arrived(h, lease, errors.Join(errShortLease, err))
		return err
	}
	r := l.begin(h)
	rest := lease.Bytes()[:h.Bytes]
	for len(rest) > 0 {
		n, err := readFull(l.c, rest[:min(len(rest), pieceBytes)], l.s.cfg.StallTimeout, &r.canceled)
		l.took(n)
		rest = rest[n:]
		if err == nil {
			continue
		}
		l.finishReading()
		l.arrived(h, lease, err)
		if err != transfer.ErrCanceled {
			return err
		}
		if err := l.discard(len(rest)); err != nil {
			return err
		}
		l.s.discarded.Add(1)
		l.tell(h)
		return nil
	}
	l.finishReading()
	l.mu.Lock()
	l.held[keyOf(h)] = struct{}{}
	l.mu.Unlock()
	l.s.chunks.Add(1)
	l.s.counters.bytes.Add(uint64(h.Bytes))
	l.arrived(h, lease, nil)
	return nil
}

// reading is a chunk whose payload is under way into a lease.
type reading struct {
	room     id.Room
	gen      id.Generation
	canceled atomic.Bool
}

func (l *sinkLink) begin(h transfer.Header) *reading {
	r := &reading{room: h.Room, gen: h.Gen}
	l.mu.Lock()
	l.under = r
	l.mu.Unlock()
	return r
}

func (l *sinkLink) finishReading() {
	l.mu.Lock()
	l.under = nil
	l.mu.Unlock()
}

// cancel wakes the reader if it reads a chunk of that hand-over.
func (l *sinkLink) cancel(room id.Room, gen id.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.under; r != nil && r.room == room && r.gen == gen {
		r.canceled.Store(true)
		l.c.SetReadDeadline(time.Unix(1, 0)) // the reader sets its own again
	}
}

func (l *sinkLink) accept(h transfer.Header) (lease *kv.Lease) {
	defer recovered(l.s.cfg.Log, "sink handler")
	return l.s.h.Accept(l.peer, h)
}

func (l *sinkLink) arrived(h transfer.Header, lease *kv.Lease, err error) {
	defer recovered(l.s.cfg.Log, "sink handler")
	l.s.h.Arrived(l.peer, h, lease, err)
}

func (l *sinkLink) discard(n int) error {
	if l.scratch == nil {
		l.scratch = make([]byte, scratchBytes)
	}
	for n > 0 {
		piece := l.scratch[:min(n, len(l.scratch))]
		got, err := readFull(l.c, piece, l.s.cfg.StallTimeout, nil)
		l.took(got)
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// took books bytes that were read; their credit goes back.
func (l *sinkLink) took(n int) {
	l.mu.Lock()
	l.unread -= int64(n)
	l.owed += int64(n)
	l.check()
	l.mu.Unlock()
	l.signal()
}

// tell queues the ACK of a chunk that was thrown away.
func (l *sinkLink) tell(h transfer.Header) {
	l.mu.Lock()
	l.acks = append(l.acks, keyOf(h))
	l.mu.Unlock()
	l.signal()
}

// ack queues the ACK of a chunk that arrived, once; for another it does nothing.
func (l *sinkLink) ack(k key) {
	l.mu.Lock()
	_, ok := l.held[k]
	if ok {
		delete(l.held, k)
		l.acks = append(l.acks, k)
	}
	l.mu.Unlock()
	if ok {
		l.signal()
	}
}

func (l *sinkLink) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write tells the source of credit and acknowledgements, many at once.
func (l *sinkLink) write() error {
	var buf []byte
	for {
		if buf = l.news(buf[:0]); len(buf) > 0 {
			bufs := net.Buffers{buf}
			if err := writeAll(l.c, &bufs, l.s.cfg.StallTimeout); err != nil {
				return err
			}
			continue
		}
		select {
		case <-l.stop:
			return nil
		case <-l.wake:
		}
	}
}

// maxNews acknowledgements go out in one write.
const maxNews = 256

func (l *sinkLink) news(b []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed > 0 {
		b = appendReply(b, reply{typ: typeCredit, from: l.s.cfg.Self, value: uint64(l.owed)})
		l.free += l.owed
		l.owed = 0
		l.check()
	}
	n := min(len(l.acks), maxNews)
	for _, k := range l.acks[:n] {
		b = appendReply(b, reply{typ: typeAck, from: l.s.cfg.Self, room: k.room, gen: k.gen, value: uint64(k.seq)})
	}
	if l.acks = l.acks[n:]; len(l.acks) == 0 {
		l.acks = nil
	}
	return b
}

// check asserts the credit's invariant. The caller holds mu.
func (l *sinkLink) check() {
	if l.s.cfg.Debug && (l.free+l.unread+l.owed != l.s.cfg.Window || l.unread < 0 || l.owed < 0) {
		panic(fmt.Sprintf("free %d + unread %d + owed %d != window %d", l.free, l.unread, l.owed, l.s.cfg.Window))
	}
}
