package room

import "github.com/tandem-llm/tandem/internal/id"

// heal asks of a state what must become of it.
//
// First the messages in flight arrive and nothing else happens: if none was lost,
// a side that has ended has told the other. Then the faults are mended and both
// workers work, and no time passes: what can end, has ended, by messages and not
// by deadlines. Then time passes, and nothing is left. And if instead nothing
// ever arrives again, every room still ends in its time.
func (m *model) heal() string {
	frozen := m.fork(m.drops)
	for range 100 {
		if _, more := frozen.next(); !more || frozen.fault != "" {
			break
		}
		frozen.apply(move{do: doTick})
	}
	frozen.mustHaveEnded("while nothing arrived")
	if frozen.fault != "" {
		return frozen.fault
	}
	h := m.fork(m.drops)
	h.arrive()
	h.mustAgree()
	h.settle()
	for range 100 {
		if _, more := h.next(); !more || h.fault != "" {
			break
		}
		h.apply(move{do: doTick})
		h.settle()
	}
	h.mustHaveEnded("after the network healed")
	h.mustBeQuiet()
	return h.fault
}

// arrive delivers every control message in flight, and their answers.
func (m *model) arrive() {
	for n := 0; len(m.wire[0])+len(m.wire[1]) > 0 && m.fault == ""; n++ {
		for s := Prefill; s <= Decode; s++ {
			if len(m.wire[s]) > 0 {
				m.apply(move{do: doDeliver, side: s})
			}
		}
		if n > 100 {
			m.broken("messages answer each other without end")
		}
	}
}

// settle mends every fault and lets everything happen that needs no time.
func (m *model) settle() {
	var todo []move
	for n := 0; m.fault == ""; n++ {
		m.arrive()
		todo = todo[:0]
		for s := Prefill; s <= Decode; s++ {
			if m.cut[s] {
				todo = append(todo, move{do: doNotice, side: s})
			}
			if m.gone[s] != 0 {
				todo = append(todo, move{do: doFence, side: s})
			}
		}
		if m.down && m.reachable() && len(todo) == 0 {
			todo = append(todo, move{do: doConnect})
		}
		for s := Prefill; s <= Decode && len(todo) == 0; s++ {
			for r := id.Room(1); int(r) <= m.sc.rooms && len(todo) == 0; r++ {
				todo = m.work(todo, s, r)
			}
		}
		if len(todo) == 0 {
			todo = m.flow(todo)
		}
		if len(todo) == 0 {
			break
		}
		m.apply(todo[0])
		if n > 300 {
			m.broken("the workers work without end")
		}
	}
	m.mustHaveSettled()
}

// mustAgree: after every message has arrived, and none was lost, nobody waits for
// a peer whose room has ended.
func (m *model) mustAgree() {
	if m.lost || m.used[crash] > 0 { // of two decodes with one room, one may speak for it in vain
		return
	}
	p, d := &m.site[Prefill], &m.site[Decode]
	for r := id.Room(1); int(r) <= m.sc.rooms; r++ {
		a, b := p.book.rooms[r], d.book.rooms[r]
		if a == nil || b == nil || b.Peer != p.inc || m.tooOld(r) {
			continue
		}
		// Decode that was refused, since the room was another's, owes prefill no word of
		// it; and the second copy of a refused READY may find the room free.
		refused := b.State == Failed && b.Cause.Code == RoomTaken && (a.Peer == 0 || m.used[twin] > 0)
		if b.State == Failed && !refused && (a.State.Live() || a.State == Early) && (a.Peer == 0 || a.Peer == d.inc) {
			m.broken("decode ended room %d with %v; every message has arrived, and prefill is in %s", r, b.Cause, a.State)
		}
		knows := a.Peer == d.inc || !m.cut[Decode] // a READY that prefill forgot with the connection: decode is about to notice
		if knows && (b.State == WaitingForInput || b.State == Transferring) && (a.State.Terminal() || a.State == Parked) {
			m.broken("prefill ended room %d with %v; every message has arrived, and decode is in %s", r, a.Cause, b.State)
		}
		if b.State == Success && a.Peer == d.inc && a.State.Live() {
			m.broken("decode has all of room %d; every message has arrived, and prefill is in %s", r, a.State)
		}
	}
}

// mustHaveSettled: with the network whole and nothing left to do, only a room
// whose other leg did not come waits, or one for which there is no memory.
func (m *model) mustHaveSettled() {
	p, d := &m.site[Prefill], &m.site[Decode]
	for r := id.Room(1); int(r) <= m.sc.rooms; r++ {
		a, b := p.book.rooms[r], d.book.rooms[r]
		if a == nil {
			a = &Record{}
		}
		if b == nil {
			b = &Record{}
		}
		if m.tooOld(r) || m.starved(r) {
			continue
		}
		if d.inc != firstDecode && b.State == Failed && b.Cause.Code == RoomTaken {
			continue // refused for the decode before it, then bound by a READY said again: T_stall ends it
		}
		if b.State.Live() && (a.State.Live() || a.State.Terminal() || a.State == Parked) {
			m.broken("everything has happened that needs no time, and room %d is in %s at prefill (%v) and in %s at decode", r, a.State, a.Cause, b.State)
		}
		if a.Peer != 0 && a.State.Live() {
			m.broken("everything has happened that needs no time, and room %d is in %s at prefill, %s at decode (%v)", r, a.State, b.State, b.Cause)
		}
		// One decode's word may have come while the room was bound to the one before it.
		second := d.inc != firstDecode && a.Peer == 0
		if b.State == Failed && !second && b.Peer == p.inc && a.State.Live() {
			m.broken("decode failed room %d with %v, and prefill never heard of it: it is in %s", r, b.Cause, a.State)
		}
		if a.State == Success && a.Peer == d.inc && b.State != Success {
			m.broken("room %d is a success at prefill, and %s at decode", r, b.State)
		}
	}
	for s := range m.site {
		for r := range m.sc.rooms {
			rec := m.site[s].book.rooms[id.Room(r+1)]
			if rec != nil && rec.State.Terminal() && !rec.Freed {
				m.broken("%s still holds memory of room %d, which ended: %+v", Side(s), r+1, m.site[s].at[r])
			}
		}
	}
}

func (m *model) tooOld(r id.Room) bool {
	return m.place(Prefill, r).lastTry || m.place(Decode, r).lastTry
}

// starved says that a room waits for memory that another one holds.
func (m *model) starved(r id.Room) bool {
	for s := Prefill; s <= Decode; s++ {
		if p := m.place(s, r); p.queued && m.taken(s) >= m.sc.slots {
			return true
		}
	}
	return false
}

func (m *model) mustHaveEnded(when string) {
	for s := range m.site {
		for _, r := range m.site[s].book.rooms {
			if r.State.Live() || r.State == Parked || r.State == Early {
				m.broken("%s: room %d is in %s for ever %s", Side(s), r.Room, r.State, when)
			}
		}
	}
}

func (m *model) mustBeQuiet() {
	for s := range m.site {
		n := &m.site[s]
		for st := Parked; st < numStates; st++ {
			if c := n.book.Counts(st); c != 0 {
				m.broken("%s still counts %d rooms in %s after everything healed and every deadline passed", Side(s), c, st)
			}
		}
		for r, p := range n.at {
			if p.held || p.queued || p.granting || p.seeking {
				m.broken("%s still holds something of room %d: %+v", Side(s), r+1, p)
			}
		}
		if len(n.book.parked.cause) != 0 || len(n.book.parked.order) != 0 {
			m.broken("%s remembers aborts of requests for ever", Side(s))
		}
	}
	if len(m.data)+len(m.bound)+len(m.acks) != 0 {
		m.broken("chunks are in flight for ever")
	}
}
