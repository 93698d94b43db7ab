package control

import (
	"sync"

	"github.com/tandem-llm/tandem/internal/room"
)

// frameCost is what a queued frame is charged beyond its bytes: slice header,
// queue slot and the allocator's rounding.
const frameCost = 64

// outbox holds what waits to be sent to one peer. ABORT and ABORT_ACK have a
// lane of their own, with its own bound: they neither wait behind READY and
// COMMIT nor are they refused because of them.
type outbox struct {
	mu     sync.Mutex
	lanes  [2]lane // urgent, normal
	limit  int     // bytes per lane
	closed bool
	wake   chan struct{} // one token: something is queued
}

type lane struct {
	frames [][]byte
	bytes  int
}

func newOutbox(limit int) *outbox { return &outbox{limit: limit, wake: make(chan struct{}, 1)} }

func laneOf(t room.Type) int {
	if t == room.Abort || t == room.AbortAck {
		return 0
	}
	return 1
}

// push queues a frame, or says why not.
func (o *outbox) push(i int, frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &o.lanes[i]
	switch {
	case o.closed:
		return ErrNoPeer
	case l.bytes+len(frame)+frameCost > o.limit:
		return ErrOutboxFull
	}
	l.frames = append(l.frames, frame)
	l.bytes += len(frame) + frameCost
	o.signal()
	return nil
}

// pop takes the next frame. One that could not be sent goes back with unpop.
func (o *outbox) pop() (frame []byte, from int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.lanes {
		if l := &o.lanes[i]; len(l.frames) > 0 {
			frame = l.frames[0]
			l.frames[0] = nil
			if l.frames = l.frames[1:]; len(l.frames) == 0 {
				l.frames = nil // let a burst's backing array go
			}
			l.bytes -= len(frame) + frameCost
			return frame, i
		}
	}
	return nil, 0
}

// unpop puts a frame back at the head of its lane. It may exceed the limit by
// that one frame.
func (o *outbox) unpop(i int, frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	l := &o.lanes[i]
	l.frames = append([][]byte{frame}, l.frames...)
	l.bytes += len(frame) + frameCost
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close drops everything and refuses what comes; it returns how many it dropped.
func (o *outbox) close() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.lanes[0].frames) + len(o.lanes[1].frames)
	o.lanes = [2]lane{}
	o.closed = true
	return n
}

func (o *outbox) size() (frames, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lanes[0].frames) + len(o.lanes[1].frames), o.lanes[0].bytes + o.lanes[1].bytes
}
