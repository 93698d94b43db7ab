package room

import (
	"fmt"

	"github.com/tandem-llm/tandem/internal/id"
)

// world is one prefill and one decode worker made of two Books, and the network,
// engines and data plane between them, all driven step by step by a test.
type world struct {
	now        Mono
	p, d       *node
	toP, toD   []packet // control messages in flight
	chunks     []chunkInFlight
	acks       []chunkInFlight
	nextGen    id.Generation
	violations []string
}

type packet struct {
	from id.Incarnation
	msg  Message
}

type chunkInFlight struct {
	from, to id.Incarnation
	room     id.Room
	gen      id.Generation
	seq      uint32
	index    int
}

// node is one worker: its book and what its engine and arena hold.
type node struct {
	w        *world
	side     Side
	inc      id.Incarnation
	book     *Book
	queue    map[id.Room]bool // admission queue; true once paired
	held     map[id.Room]*job // rooms with resources
	seeking  map[id.Room]bool
	answers  map[id.Room][]*Cause
	proceeds map[id.Room]int
	refused  map[id.Room]int
	evicted  map[id.Room]bool
	have     map[id.Room]int32 // what decode's cache holds of a room's prompt
}

type job struct {
	exported  int
	published int // chunks in the data plane and not settled
	stopped   bool
}

const (
	testChunk  = 4
	chunkBytes = 10
)

func newWorld() *world {
	w := &world{nextGen: 100}
	w.p = w.newNode(Prefill, 1)
	w.d = w.newNode(Decode, 1001)
	return w
}

func (w *world) newNode(side Side, inc id.Incarnation) *node {
	return &node{w: w, side: side, inc: inc, book: New(side, testChunk, Limits{}), queue: map[id.Room]bool{},
		held: map[id.Room]*job{}, seeking: map[id.Room]bool{}, answers: map[id.Room][]*Cause{},
		proceeds: map[id.Room]int{}, refused: map[id.Room]int{}, evicted: map[id.Room]bool{}, have: map[id.Room]int32{}}
}

func (w *world) fault(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// perform carries out effects as a worker would.
func (n *node) perform(fx []Effect) {
	for _, e := range fx {
		switch e := e.(type) {
		case Send:
			if n.side == Prefill && e.To == n.w.d.inc {
				n.w.toD = append(n.w.toD, packet{n.inc, e.Msg})
			}
			if n.side == Decode && e.To == n.w.p.inc {
				n.w.toP = append(n.w.toP, packet{n.inc, e.Msg})
			}
		case Enqueue:
			if n.held[e.Room] == nil {
				n.queue[e.Room] = e.Paired
			}
		case Evict:
			n.evicted[e.Room] = true
			delete(n.held, e.Room)
			n.queue[e.Room] = false
		case Seek:
			n.seeking[e.Room] = true
		case Publish:
			j := n.held[e.Room]
			if j == nil || e.Index >= j.exported {
				n.w.fault("published chunk %d of room %d that was not exported", e.Index, e.Room)
				continue
			}
			j.published++
			n.w.chunks = append(n.w.chunks, chunkInFlight{n.inc, e.To, e.Room, e.Gen, e.Seq, e.Index})
		case StopWork:
			delete(n.queue, e.Room)
			delete(n.seeking, e.Room)
			if j := n.held[e.Room]; j != nil {
				j.stopped = true
			}
		case Answer:
			n.answers[e.Room] = append(n.answers[e.Room], e.Cause)
		case Proceed:
			n.proceeds[e.Room]++
		case Refuse:
			n.refused[e.Room]++
		}
	}
}

func (n *node) leg(room id.Room, tokens int32, digest byte, deadline Mono) {
	l := Leg{Room: room, RID: id.RID(room.String()), Tokens: tokens, Digest: Digest{digest}, Deadline: deadline}
	if n.side == Decode { // prefill is told by READY
		l.Window = 2 * chunkBytes
	}
	n.perform(n.book.LegArrived(n.w.now, l))
}

// admit takes resources for a queued room.
func (n *node) admit(room id.Room) {
	paired, queued := n.queue[room]
	if !queued || n.side == Prefill && n.evicted[room] && !paired {
		return
	}
	delete(n.queue, room)
	n.held[room] = &job{}
	n.perform(n.book.Admitted(n.w.now, room, n.have[room]))
}

// compute makes the prefill engine export the next chunk of a room.
func (n *node) compute(room id.Room) {
	j, r := n.held[room], n.book.Get(room)
	if j == nil || j.stopped || r == nil {
		return
	}
	whole := Record{Leg: Leg{Tokens: r.Tokens}}
	if j.exported >= int(whole.Chunks(testChunk)) {
		return
	}
	_, _, last := whole.span(uint32(j.exported), testChunk)
	j.exported++
	n.perform(n.book.Exported(n.w.now, room, chunkBytes, uint64(j.exported), last))
}

// free gives a stopped room's memory back, once nothing reads it.
func (n *node) free(room id.Room) {
	j := n.held[room]
	if j != nil && j.stopped && j.published == 0 || j == nil && n.book.Get(room) != nil && n.book.Get(room).State.Terminal() {
		delete(n.held, room)
		n.perform(n.book.Freed(n.w.now, room))
	}
}

func (w *world) sessionUp(room id.Room) {
	if w.d.seeking[room] {
		delete(w.d.seeking, room)
		w.nextGen++
		w.d.perform(w.d.book.PeerUp(w.now, room, w.p.inc, w.nextGen))
	}
}

func (w *world) deliverToP(i int) {
	m := w.toP[i]
	w.toP = append(w.toP[:i:i], w.toP[i+1:]...)
	if m.from == w.d.inc {
		w.p.perform(w.p.book.Message(w.now, m.from, m.msg))
	}
}

func (w *world) deliverToD(i int) {
	m := w.toD[i]
	w.toD = append(w.toD[:i:i], w.toD[i+1:]...)
	if m.from == w.p.inc {
		w.d.perform(w.d.book.Message(w.now, m.from, m.msg))
	}
}

// deliverChunk moves the oldest chunk to decode, which imports it at once if it
// took it, and queues the acknowledgement.
func (w *world) deliverChunk() {
	c := w.chunks[0]
	w.chunks = w.chunks[1:]
	if c.to == w.d.inc {
		r := w.d.book.Get(c.room)
		whole := Record{}
		if r != nil {
			whole = Record{Leg: Leg{Tokens: r.Tokens}}
		}
		p0, p1, last := whole.span(uint32(c.index), testChunk)
		take, fx := w.d.book.Chunk(w.now, c.from, c.gen, c.room, c.seq, p0, p1, chunkBytes, last)
		w.d.perform(fx)
		if take {
			if j := w.d.held[c.room]; j == nil {
				w.fault("room %d took a chunk without an import buffer", c.room)
			}
			w.d.perform(w.d.book.Imported(w.now, c.room, c.gen, chunkBytes, uint64(c.index+1)))
		}
	}
	w.acks = append(w.acks, c)
}

func (w *world) deliverAck() {
	c := w.acks[0]
	w.acks = w.acks[1:]
	w.settle(c, nil)
}

func (w *world) settle(c chunkInFlight, cause *Cause) {
	if c.from != w.p.inc {
		return // published by a process that is dead
	}
	if j := w.p.held[c.room]; j != nil {
		j.published--
	}
	w.p.perform(w.p.book.Settled(w.now, c.room, c.gen, chunkBytes, cause))
}

// cutData breaks the data connection: everything in flight is settled with an
// error, and both sides end the rooms that were transferring.
func (w *world) cutData() {
	lost := append(w.chunks, w.acks...)
	w.chunks, w.acks = nil, nil
	cause := Because(TransferLost, "cut")
	for _, c := range lost {
		w.settle(c, cause)
	}
	w.p.perform(w.p.book.PeerDown(w.now, w.d.inc, cause))
	w.d.perform(w.d.book.PeerDown(w.now, w.p.inc, cause))
}

// restart replaces one worker by a new incarnation with an empty book; the other
// learns that its peer is gone.
func (w *world) restart(side Side) {
	gone := Because(PeerGone, "restarted")
	if side == Prefill {
		old := w.p.inc
		w.p = w.newNode(Prefill, old+1)
		w.chunks, w.acks = nil, nil
		w.d.perform(w.d.book.PeerDown(w.now, old, gone))
	} else {
		old := w.d.inc
		w.d = w.newNode(Decode, old+1)
		w.d.perform(nil)
		lost := append(w.chunks, w.acks...)
		w.chunks, w.acks = nil, nil
		for _, c := range lost {
			w.settle(c, gone)
		}
		w.p.perform(w.p.book.PeerDown(w.now, old, gone))
	}
}

func (w *world) advance(to Mono) {
	w.now = to
	w.p.perform(w.p.book.Sweep(w.now))
	w.d.perform(w.d.book.Sweep(w.now))
}
