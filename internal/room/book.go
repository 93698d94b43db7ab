package room

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/tandem-llm/tandem/internal/id"
)

// Book holds every room of one worker, living and remembered.
type Book struct {
	side   Side
	chunk  int32 // C, tokens
	limits Limits

	rooms    map[id.Room]*Record
	rids     map[id.RID]id.Room
	parked   ridPark
	tombs    []id.Room // buried rooms, oldest first
	strays   map[id.Incarnation][]id.Room
	timers   timers
	draining bool

	counts   [numStates]int // rooms in each state that are not buried
	drops    map[string]uint64
	impossed uint64 // cells that the guards exclude, and sums that cannot be, reached all the same

	now Mono
	out []Effect
}

// New returns an empty book for one side. chunk is C, the tokens of a full chunk.
func New(side Side, chunk int, limits Limits) *Book {
	limits = limits.withDefaults()
	return &Book{
		side:   side,
		chunk:  int32(chunk),
		limits: limits,
		rooms:  make(map[id.Room]*Record),
		rids:   make(map[id.RID]id.Room),
		parked: newRIDPark(limits.Tombstones),
		strays: make(map[id.Incarnation][]id.Room),
		drops:  make(map[string]uint64),
	}
}

// Get returns a room's record, nil if none. The book owns it: read only, until
// the next call.
func (b *Book) Get(r id.Room) *Record { return b.rooms[r] }

// ByRID returns the record of a request's room on this worker, nil if none.
func (b *Book) ByRID(rid id.RID) *Record {
	return b.rooms[b.rids[rid]] // there is no room 0
}

// Counts returns the rooms in a state whose memory is not all free yet (terminal
// states), or that are there at all (others).
func (b *Book) Counts(s State) int { return b.counts[s] }

// Remembered returns how many ended rooms are kept as tombstones.
func (b *Book) Remembered() int { return len(b.tombs) }

// Drops returns how often something was ignored, by reason. The caller may keep it.
func (b *Book) Drops() map[string]uint64 {
	out := make(map[string]uint64, len(b.drops))
	for k, v := range b.drops {
		out[k] = v
	}
	return out
}

// Impossible returns how often a cell was reached that the guards exclude, or a
// sum that cannot be. It is 0 unless there is a fault in this package.
func (b *Book) Impossible() uint64 { return b.impossed }

// begin starts a call: time never goes back, effects start empty.
func (b *Book) begin(now Mono) {
	b.now = max(b.now, now)
	b.out = nil
}

// step applies one classified event to a room's record, or to Absent.
func (b *Book) step(r *Record, ev occurrence) {
	from, start := r.State, len(b.out)
	c := tables[b.side][from][ev.kind]
	if c.next != stay {
		b.move(r, c.next, ev)
	}
	for _, a := range c.do {
		b.perform(a, r, ev)
	}
	if from != r.State {
		// The actions set the cause and the peer; the transition is told with them,
		// and before the effects that follow from it.
		b.out = slices.Insert(b.out, start, Effect(Moved{Room: r.Room, From: from, To: r.State, On: ev.kind.String(), Peer: r.Peer, Cause: r.Cause}))
	}
	b.arm(r)
}

// move changes a record's state and its place in the counts and the map.
func (b *Book) move(r *Record, to State, ev occurrence) {
	if r.State == Absent {
		b.rooms[r.Room] = r
	} else {
		b.counts[r.State]--
	}
	r.State = to
	r.Since = b.now
	if to == Absent {
		b.remove(r)
		return
	}
	b.counts[to]++
	if (to == Parked || to == Early) && ev.from != 0 {
		b.stray(r.Room, ev.from)
	}
}

func (b *Book) remove(r *Record) {
	delete(b.rooms, r.Room)
	if b.rids[r.RID] == r.Room {
		delete(b.rids, r.RID)
	}
}

// stray bounds the rooms that a peer makes us remember before their leg came.
func (b *Book) stray(room id.Room, from id.Incarnation) {
	list := append(b.strays[from], room)
	for len(list) > b.limits.PerPeer {
		old := b.rooms[list[0]]
		list = list[1:]
		if old != nil && (old.State == Parked || old.State == Early) {
			b.counts[old.State]--
			old.State = Absent
			b.remove(old)
			b.drops["stray_quota"]++
		}
	}
	b.strays[from] = list
}

// bury makes a terminal room a tombstone, and forgets the oldest beyond capacity.
func (b *Book) bury(r *Record) {
	if r.Freed {
		return
	}
	r.Freed = true
	r.entomb()
	b.counts[r.State]--
	b.tombs = append(b.tombs, r.Room)
	for len(b.tombs) > b.limits.Tombstones {
		b.remove(b.rooms[b.tombs[0]])
		b.tombs = b.tombs[1:]
		b.drops["tombstone_overflow"]++
	}
}

// due returns when something happens to a record by itself, and what.
func (b *Book) due(r *Record) (at Mono, ev event, ok bool) {
	quarter := func(d Mono) Mono {
		return min(d, (r.Deadline-r.Since)/4)
	}
	earlier := func(lapse Mono, ev event) (Mono, event, bool) {
		if r.Deadline <= lapse {
			return r.Deadline, evExpire, true
		}
		return lapse, ev, true
	}
	switch r.State {
	case Parked:
		return r.Since.After(b.limits.Park), evLapse, true
	case Early:
		return r.Since.After(b.limits.Ready), evLapse, true
	case Computing:
		return earlier(r.Since+quarter(Mono(b.limits.Ready)), evLapse)
	case Bootstrapping:
		if b.side == Decode {
			return earlier(r.Since+quarter(Mono(b.limits.Bootstrap)), evLapse)
		}
		return r.Deadline, evExpire, true
	case Transferring:
		if r.outstanding > 0 || r.complete { // decode owes acknowledgements, or COMMIT
			return earlier(r.moved.After(b.limits.Stall), evStall)
		}
		return r.Deadline, evExpire, true
	case Prealloc, WaitingForInput:
		return r.Deadline, evExpire, true
	case Success:
		if !r.Freed && !r.stopped { // decode generates; prefill was stopped by its success
			return r.Deadline, evExpire, true
		}
	}
	return 0, 0, false
}

// arm makes sure that a timer fires no later than the record's due time. Timers
// that fire early look again, so a due time that only moves later costs nothing.
func (b *Book) arm(r *Record) {
	at, _, ok := b.due(r)
	if !ok || (r.timerAt != 0 && r.timerAt <= at) {
		return
	}
	r.timerAt = max(at, 1)
	heap.Push(&b.timers, timer{at: r.timerAt, room: r.Room})
	if len(b.timers) > 2*len(b.rooms)+spareTimers {
		b.compact()
	}
}

// spareTimers is how many timers that count for nothing may lie in the heap besides
// one for each room: below this, taking them out is not worth it.
const spareTimers = 64

// compact takes the timers out that count for nothing any more. Those of ended rooms
// would stay until their deadlines, and a busy worker ends many rooms in an hour.
func (b *Book) compact() {
	b.timers = slices.DeleteFunc(b.timers, func(t timer) bool {
		r := b.rooms[t.room]
		return r == nil || r.timerAt != t.at
	})
	heap.Init(&b.timers)
}

// Next returns when Sweep must be called next, false if nothing waits.
func (b *Book) Next() (Mono, bool) {
	if at, ok := b.parked.next(); ok {
		if len(b.timers) == 0 || at < b.timers[0].at {
			return at, true
		}
	}
	if len(b.timers) == 0 {
		return 0, false
	}
	return b.timers[0].at, true
}

// Sweep applies every deadline that has passed, each once: one that a transition
// leads to is for the next call, so that a Sweep always ends.
func (b *Book) Sweep(now Mono) []Effect {
	b.begin(now)
	b.parked.sweep(b.now)
	var passed []*Record
	for len(b.timers) > 0 && b.timers[0].at <= b.now {
		t := heap.Pop(&b.timers).(timer)
		if r := b.rooms[t.room]; r != nil && r.timerAt == t.at {
			r.timerAt = 0
			passed = append(passed, r)
		}
	}
	for _, r := range passed {
		if at, ev, ok := b.due(r); ok && at <= b.now {
			b.step(r, occurrence{kind: ev, cause: b.lapseCause(r, ev)})
		} else {
			b.arm(r)
		}
	}
	return b.out
}

func (b *Book) lapseCause(r *Record, ev event) *Cause {
	waited := b.now.Sub(r.Since)
	switch ev {
	case evExpire:
		return Because(Deadline, "the request's deadline passed in %s, %v after it got there", r.State, waited.Round(1e6))
	case evStall:
		if r.outstanding == 0 {
			return Because(TransferStall, "every chunk was acknowledged and COMMIT did not come for %v", b.limits.Stall)
		}
		return Because(TransferStall, "%d published bytes were not fetched for %v", r.outstanding, b.limits.Stall)
	}
	if b.side == Decode {
		return Because(BootstrapTimeout, "no session with the prefill worker after %v", waited.Round(1e6))
	}
	return Because(UnpairedTimeout, "READY came %v ago and the router's leg did not", waited.Round(1e6))
}

// timer is one entry of the heap. A record's timer that counts is the one whose
// time equals Record.timerAt.
type timer struct {
	at   Mono
	room id.Room
}

type timers []timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].room < t[j].room
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

// sorted returns all records in the order of their numbers, so that one history
// always gives the same effects.
func (b *Book) sorted() []*Record {
	all := make([]*Record, 0, len(b.rooms))
	for _, r := range b.rooms {
		all = append(all, r)
	}
	slices.SortFunc(all, func(x, y *Record) int { return cmp.Compare(x.Room, y.Room) })
	return all
}

// BoundTo returns the rooms whose hand-over with a peer is under way, or ended so
// lately that its last message may have been lost with a session.
func (b *Book) BoundTo(peer id.Incarnation) (rooms []id.Room) {
	for _, r := range b.sorted() {
		lately := r.State.Terminal() && b.now.Sub(r.Since) < b.limits.Ready
		if r.Peer == peer && (r.State.Live() || lately) {
			rooms = append(rooms, r.Room)
		}
	}
	return rooms
}
