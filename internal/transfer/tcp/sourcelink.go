package tcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// item is one published chunk.
type item struct {
	h     transfer.Header
	lease *kv.Lease
	state itemState
	acked bool // while it is being written

	canceled bool // while it is being written: its lease is wanted back
}

type itemState uint8

const (
	queued  itemState = iota
	writing           // the writer reads the lease's bytes
	sent              // waits for its ACK
)

// sourceLink is one sink's connection.
type sourceLink struct {
	s    *Source
	c    net.Conn
	peer id.Incarnation
	wake chan struct{} // one token: look at the queue
	stop chan struct{} // closed by fail
	done chan struct{} // closed when everything is settled

	running atomic.Int32

	mu       sync.Mutex
	queue    []*item       // in order of Publish, state queued
	items    map[key]*item // all that are not settled
	bytes    int64         // of items
	window   int64
	credit   int64 // may be negative: one chunk longer than the window
	inFlight int64
	idle     int   // ticks since the last write or CREDIT, while something was in flight
	err      error // why it ended
}

func newSourceLink(s *Source, c net.Conn, peer id.Incarnation, window int64) *sourceLink {
	return &sourceLink{s: s, c: c, peer: peer, window: window, credit: window, items: map[key]*item{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

func (l *sourceLink) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *sourceLink) publish(h transfer.Header, lease *kv.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return transfer.ErrNoLink
	case len(l.items) >= l.s.cfg.MaxQueued:
		return transfer.ErrFull
	case l.items[keyOf(h)] != nil:
		return ErrDuplicate
	}
	it := &item{h: h, lease: lease}
	l.items[keyOf(h)] = it
	l.bytes += int64(h.Bytes)
	l.queue = append(l.queue, it)
	l.signal()
	return nil
}

func (l *sourceLink) cancel(room id.Room, gen id.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var evs []event
	for _, it := range l.items {
		switch {
		case it.h.Room != room || it.h.Gen != gen:
		case it.state != writing: // not begun, or all of it is with the kernel
			evs = append(evs, l.settle(it, transfer.ErrCanceled))
		case !it.canceled:
			it.canceled = true
			l.leased(it, stallSlices)
		}
	}
	l.queue = slices.DeleteFunc(l.queue, func(it *item) bool { return it.h.Room == room && it.h.Gen == gen })
	l.s.events.post(evs...)
}

// leased closes the link when a canceled chunk's write has not ended after so many
// slices of the lease. It counts slices for the reason given at stallSlices.
func (l *sourceLink) leased(it *item, slices int) {
	time.AfterFunc(transfer.Lease/stallSlices, func() {
		l.mu.Lock()
		stands := l.err == nil && it.state == writing
		if stands && slices > 1 {
			l.leased(it, slices-1)
		}
		l.mu.Unlock()
		if stands && slices <= 1 {
			l.fail(fmt.Errorf("%w: a canceled chunk for %v", errStalled, transfer.Lease))
		}
	})
}

// settle forgets an item, gives its lease back and returns the news of it. The
// caller holds mu, and knows that nobody reads the lease's bytes.
func (l *sourceLink) settle(it *item, err error) event {
	delete(l.items, keyOf(it.h))
	l.bytes -= int64(it.h.Bytes)
	it.lease.Release()
	if err == nil {
		l.s.chunks.Add(1)
		l.s.counters.bytes.Add(uint64(it.h.Bytes))
	}
	return event{kind: settled, peer: l.peer, h: it.h, err: err}
}

func (l *sourceLink) held() (int, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items), l.bytes
}

// fail ends the link from any goroutine; the first reason wins.
func (l *sourceLink) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
		close(l.stop)
	}
	l.mu.Unlock()
	if first {
		l.c.Close() // releases a blocked read or write
	}
}

// run is the reader, and starts the writer. Called on the connection's task.
func (l *sourceLink) run() {
	l.running.Store(2)
	l.s.conns.Task("writer", func(context.Context) { l.end(l.write) })
	l.end(l.read)
}

// end runs one half; the second one to end settles everything.
func (l *sourceLink) end(half func() error) {
	err := errors.New("panic in the link")
	defer func() {
		l.fail(err)
		if l.running.Add(-1) == 0 {
			l.finish()
		}
	}()
	err = half()
}

func (l *sourceLink) finish() {
	l.s.mu.Lock()
	if l.s.links[l.peer] == l {
		delete(l.s.links, l.peer)
	}
	l.s.mu.Unlock()
	l.mu.Lock()
	how := transfer.ErrLinkDown
	if errors.Is(l.err, transfer.ErrFenced) {
		how = transfer.ErrFenced
	}
	evs := make([]event, 0, len(l.items)+1)
	for _, it := range l.items {
		evs = append(evs, l.settle(it, how))
	}
	l.queue = nil
	evs = append(evs, event{kind: linkDown, peer: l.peer, err: l.err})
	l.s.events.post(evs...)
	l.mu.Unlock()
	close(l.done)
}

// next takes the chunk to write now, if the credit allows the first in line.
func (l *sourceLink) next() *item {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || len(l.queue) == 0 {
		return nil
	}
	it := l.queue[0]
	n := int64(it.h.Bytes)
	if l.inFlight > 0 && n > l.credit {
		return nil
	}
	l.queue[0] = nil
	l.queue = l.queue[1:]
	it.state = writing
	l.idle = 0
	l.credit -= n
	l.inFlight += n
	l.check()
	return it
}

func (l *sourceLink) written(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	it.state = sent
	l.idle = 0
	switch {
	case it.acked:
		l.s.events.post(l.settle(it, nil))
	case it.canceled:
		l.s.events.post(l.settle(it, transfer.ErrCanceled))
	}
}

func (l *sourceLink) write() error {
	var head [chunkSize]byte
	var pair [2][]byte
	tick := time.NewTicker(max(l.s.cfg.StallTimeout/stallSlices, time.Millisecond))
	defer tick.Stop()
	for {
		if it := l.next(); it != nil {
			putChunk(head[:], l.s.cfg.Self, it.h)
			pair = [2][]byte{head[:], it.lease.Bytes()[:it.h.Bytes]}
			bufs := net.Buffers(pair[:])
			if err := writeAll(l.c, &bufs, l.s.cfg.StallTimeout); err != nil {
				return err
			}
			l.written(it)
			continue
		}
		select {
		case <-l.stop:
			return nil
		case <-l.wake:
		case <-tick.C:
			if l.stalled() {
				return fmt.Errorf("%w: no credit for %v", errStalled, l.s.cfg.StallTimeout)
			}
		}
	}
}

// stalled says that the sink has read nothing of what is in flight for too long.
// It is called once a tick, and counts ticks rather than time for the reason
// given at stallSlices.
func (l *sourceLink) stalled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 {
		l.idle = 0
		return false
	}
	l.idle++
	return l.idle > stallSlices
}

func (l *sourceLink) read() error {
	r := bufio.NewReaderSize(l.c, 16*replySize)
	var b [replySize]byte
	for {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return err
		}
		f, err := decodeReply(b[:])
		if err == nil && f.from != l.peer {
			err = fmt.Errorf("reply of incarnation %v on the link of %v", f.from, l.peer)
		}
		if err == nil {
			err = l.take(f)
		}
		if err != nil {
			l.s.malformed.Add(1)
			return err
		}
	}
}

func (l *sourceLink) take(f reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.typ == typeCredit {
		if f.value > uint64(l.inFlight) {
			return fmt.Errorf("credit for %d bytes, %d are in flight", f.value, l.inFlight)
		}
		l.credit += int64(f.value)
		l.inFlight -= int64(f.value)
		l.idle = 0
		l.check()
		l.signal()
		return nil
	}
	it := l.items[key{f.room, f.gen, uint32(f.value)}]
	switch {
	case it == nil || it.state == queued: // late or invented: it changes nothing
	case it.state == writing:
		it.acked = true
	default:
		l.s.events.post(l.settle(it, nil))
	}
	return nil
}

// check asserts the credit's invariant. The caller holds mu.
func (l *sourceLink) check() {
	if l.s.cfg.Debug && (l.credit+l.inFlight != l.window || l.inFlight < 0) {
		panic(fmt.Sprintf("credit %d + in flight %d != window %d", l.credit, l.inFlight, l.window))
	}
}
