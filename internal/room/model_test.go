package room

import (
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// model is a bounded world for the explorer: one prefill and one decode worker,
// each a real Book, with the least around them that a protocol can be wrong
// about. Control messages arrive in any order; chunks and acknowledgements in
// theirs. Everything that may happen is a move (moves_test.go, apply_test.go); what
// must always hold is a law (laws_test.go, heal_test.go).
type model struct {
	sc     *scope
	now    Mono
	site   [2]site
	owned  [2]bool // the book is this model's own and may change
	drops  map[string]uint64
	wire   [2][]packet // control messages in flight, by the side they go to
	data   []piece     // chunks in flight
	bound  []piece     // chunks that decode took and has not imported
	acks   []piece     // acknowledgements in flight
	used   [numFaults]uint8
	lost   bool    // a control message was lost that no reconnect has mended
	down   bool    // there is no session
	downAt Mono    // since when
	cut    [2]bool // the data connection broke, and this side has not noticed
	gone   [2]id.Incarnation

	fx    []Effect // of the last move
	swept bool     // the last move was a tick
	fault string   // the first law that was broken
}

// site is one worker.
type site struct {
	side Side
	inc  id.Incarnation
	book *Book
	at   [maxRooms]place
}

// place is what a worker's engine and queues, and the leg's connection, know of one room.
type place struct {
	leg       legState
	queued    bool // in the admission queue
	paired    bool
	evicted   bool // has been admitted early once
	granting  bool // resources are taken, the book is not told
	held      bool // resources
	stopped   bool // they were asked back
	seeking   bool
	lastTry   bool // the ending is too old: it is forgotten, or not said again at a reconnect
	exported  int8 // chunks the engine wrote
	discarded int8
	air       int8 // published and not settled
	answers   int8
	proceeds  int8
	moved     Mono // when bytes last moved
	answer    Code
}

type legState uint8

const (
	legOut legState = iota // not here (yet)
	legIn
	legRefused
)

// piece is one published chunk.
type piece struct {
	from, to id.Incarnation
	room     id.Room
	gen      id.Generation
	seq      uint32
	idx      int8
	void     bool // prefill has given it up
}

// fault is a kind of thing that must not happen often; a scope says how often it may.
type fault uint8

const (
	loss   fault = iota // of a control message, and with it of the session
	twin                // a control message arrives twice
	crash               // a worker restarts with another incarnation
	cut                 // the data connection breaks
	abort               // a client leaves one leg
	break1              // the engine of one worker fails a room
	tick                // nothing happens until the next deadline
	lie                 // a peer says what no peer of ours would
	slow                // admission loses a race with what comes next
	drain               // a worker leaves service
	numFaults
)

// scope bounds a model.
type scope struct {
	name   string
	rooms  int
	tokens int32 // of each prompt
	have   int32 // of them in decode's cache
	window int64 // of decode, bytes
	slots  int8  // rooms that have resources at once, on each side
	may    [numFaults]uint8
	sum    int  // of all faults but ticks; 0 for no bound
	deep   bool // left to make explore
}

const (
	maxRooms     = 2
	firstPrefill = id.Incarnation(1)
	firstDecode  = id.Incarnation(1001)
	fence        = Mono(5 * time.Second) // control: a peer without a session is given up
)

// The legs' deadlines differ: each worker has its own clock.
func deadline(s Side, r id.Room) Mono {
	if (s == Prefill) == (r == 1) {
		return Mono(14 * time.Second)
	}
	return Mono(15 * time.Second)
}

func newModel(sc *scope) *model {
	m := &model{sc: sc, now: Mono(time.Second), down: true, drops: map[string]uint64{}, owned: [2]bool{true, true}}
	m.downAt = m.now
	m.site[Prefill] = site{side: Prefill, inc: firstPrefill, book: New(Prefill, testChunk, Limits{})}
	m.site[Decode] = site{side: Decode, inc: firstDecode, book: New(Decode, testChunk, Limits{})}
	return m
}

// fork returns a copy of the model that shares the books until it changes them.
func (m *model) fork(drops map[string]uint64) *model {
	c := *m
	c.drops = drops
	c.owned = [2]bool{}
	c.fx = nil
	for s := range c.wire {
		c.wire[s] = m.wire[s][:len(m.wire[s]):len(m.wire[s])]
	}
	c.data, c.bound, c.acks = m.data[:len(m.data):len(m.data)], m.bound[:len(m.bound):len(m.bound)], m.acks[:len(m.acks):len(m.acks)]
	return &c
}

// book returns a side's book, to be changed.
func (m *model) book(s Side) *Book {
	if !m.owned[s] {
		m.site[s].book = m.site[s].book.clone(m.drops)
		m.owned[s] = true
	}
	return m.site[s].book
}

func (m *model) rec(s Side, r id.Room) *Record { return m.site[s].book.rooms[r] }

func (m *model) place(s Side, r id.Room) *place { return &m.site[s].at[r-1] }

func (m *model) broken(format string, args ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf(format, args...)
	}
}

func (s Side) other() Side { return 1 - s }

// chunks is how many chunks the engine exports for a whole prompt.
func (sc *scope) chunks() int8 {
	return int8((&Record{Leg: Leg{Tokens: sc.tokens}}).Chunks(testChunk))
}

// hash returns the canonical digest of a state. Messages in flight have no order,
// times count from now, an ended room is only what it is remembered by. Rooms are
// not interchangeable: the deadlines of their legs come in different orders.
func (m *model) hash() hash {
	h := hash(1)
	for s := range m.site {
		n := &m.site[s]
		h = h.add(uint64(n.inc)).flags(n.book.draining)
		for r := id.Room(1); int(r) <= m.sc.rooms; r++ {
			h = n.book.digest(h, r)
			p := &n.at[r-1]
			h = h.flags(p.queued, p.paired, p.evicted, p.granting, p.held, p.stopped, p.seeking, p.lastTry, p.leg == legIn, p.leg == legRefused)
			h = h.add(uint64(p.exported)<<24 | uint64(p.air)<<16 | uint64(p.answers)<<8 | uint64(p.proceeds))
		}
		for _, o := range n.book.parked.order { // an order of at most a few
			if c := n.book.parked.cause[o.attempt]; c != nil {
				h = h.text(string(o.rid)).add(uint64(o.until - m.now)).cause(c)
			}
		}
		var sum hash // messages have no order
		for _, p := range m.wire[s] {
			q := hash(7).add(uint64(p.from)).add(uint64(p.msg.Type)<<32 | uint64(p.msg.Room)).add(uint64(p.msg.Gen)).text(string(p.msg.Cause.Code))
			q = q.add(uint64(p.msg.Tokens)).add(uint64(p.msg.Digest[0])<<32 | uint64(p.msg.Have)).add(uint64(p.msg.Chunks)).add(p.msg.Sum)
			sum += q
		}
		h = h.add(uint64(sum))
	}
	for i, q := range [][]piece{m.data, m.bound, m.acks} {
		h = h.add(uint64(i)<<8 | uint64(len(q)))
		for _, p := range q {
			h = h.add(uint64(p.from)<<32 | uint64(p.to)<<16 | uint64(p.room)<<8 | uint64(p.seq)).add(uint64(p.gen)).flags(p.void)
		}
	}
	for i := range m.used {
		h = h.add(uint64(m.used[i]))
	}
	h = h.flags(m.lost, m.down, m.cut[0], m.cut[1]).add(uint64(m.gone[0])).add(uint64(m.gone[1]))
	if m.down {
		h = h.add(uint64(m.now - m.downAt))
	}
	return h
}
