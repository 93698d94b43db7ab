package room

import (
	"slices"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// brief is what of a record an ignored event must not change.
type brief struct {
	state                               State
	gen                                 id.Generation
	peer                                id.Incarnation
	published, settled, taken, imported uint32
	held, outstanding                   int64
	stopped, freed                      bool
}

func (m *model) brief(s Side, r id.Room) brief {
	rec := m.rec(s, r)
	if rec == nil {
		return brief{}
	}
	return brief{rec.State, rec.Gen, rec.Peer, rec.published, rec.settled, rec.taken, rec.imported, rec.held, rec.outstanding, rec.stopped, rec.Freed}
}

// has says whether an effect of this kind is among some.
func has[E Effect](fx []Effect) bool {
	return slices.ContainsFunc(fx, func(e Effect) bool { _, ok := e.(E); return ok })
}

// checkMessage: an ABORT is acknowledged in every state, and a message that
// changes nothing and is not answered is counted.
func (m *model) checkMessage(s Side, p packet, before brief, fx []Effect) {
	ignored := has[Drop](fx)
	if p.msg.Type == Abort {
		acked := slices.ContainsFunc(fx, func(e Effect) bool {
			a, ok := e.(Send)
			return ok && a.To == p.from && a.Msg.Type == AbortAck && a.Msg.Room == p.msg.Room && a.Msg.Gen == p.msg.Gen
		})
		foreign := slices.ContainsFunc(fx, func(e Effect) bool { d, ok := e.(Drop); return ok && d.Reason == "foreign" })
		if !acked && !foreign {
			m.broken("%s did not acknowledge an ABORT of room %d", s, p.msg.Room)
		}
	}
	after := m.brief(s, p.msg.Room)
	if after == before && !ignored && p.msg.Type != AbortAck && !has[Send](fx) {
		m.broken("%s ignored %s of room %d and did not count it", s, p.msg.Type, p.msg.Room)
	}
	if after == before && p.msg.Type != Ready && p.msg.Type != Commit && p.msg.Type != AbortAck && !ignored {
		m.broken("%s ignored %s of room %d and did not count it", s, p.msg.Type, p.msg.Room)
	}
	rec := m.rec(s, p.msg.Room)
	if rec == nil || p.msg.Type != Abort && p.msg.Type != Fail || before.state.Terminal() || !rec.State.Terminal() {
		return
	}
	if rec.Cause == nil || rec.Cause.Code != p.msg.Cause.Code {
		m.broken("%s ended room %d with %v, its peer said %v", s, p.msg.Room, rec.Cause, p.msg.Cause.Error())
	}
}

// checkChunk: a chunk is taken if and only if it is due; what is not is counted.
func (m *model) checkChunk(c piece, skew uint32, take bool, before brief, fx []Effect) {
	rec := m.rec(Decode, c.room)
	due := (before.state == WaitingForInput || before.state == Transferring) && before.peer == c.from && before.gen == c.gen
	if due && skew == 0 && !take {
		m.broken("decode did not take chunk %d of room %d: %v", c.seq, c.room, rec.Cause)
	}
	if take && (!due || skew != 0 || before.held+chunkBytes > m.sc.window && before.held > 0) {
		m.broken("decode took chunk %d of room %d in %s, as chunk %d, with %d bytes held", c.seq, c.room, before.state, c.seq+skew, before.held)
	}
	if due && skew != 0 && (rec.State != Failed || rec.Cause.Code != Protocol) {
		m.broken("decode let a chunk that was not due pass in room %d", c.room)
	}
	if take && (rec.taken != before.taken+1 || rec.held != before.held+chunkBytes) {
		m.broken("decode took chunk %d of room %d and counts %d chunks and %d bytes", c.seq, c.room, rec.taken, rec.held)
	}
	if !take && !due && !has[Drop](fx) {
		m.broken("decode ignored a chunk of room %d and did not count it", c.room)
	}
}

// checkSend: an ending is an ABORT if and only if it is no failure, and says why.
func (m *model) checkSend(s Side, e Send) {
	if e.To == 0 {
		m.broken("%s sends %s to nobody", s, e.Msg.Type)
	}
	switch t := e.Msg.Type; t {
	case Abort, Fail:
		if c := e.Msg.Cause; c.Code == "" || c.Code == Done || (c.Outcome() == Aborted) != (t == Abort) {
			m.broken("%s sends %s because of %q", s, t, c.Code)
		}
	}
}

// checkMoved: what is over is over, and no time ends before its time.
func (m *model) checkMoved(s Side, e Moved) {
	if e.From.Terminal() {
		m.broken("%s: room %d left %s for %s", s, e.Room, e.From, e.To)
	}
	if e.To == Failed && e.Cause == nil {
		m.broken("%s failed room %d and nobody knows why", s, e.Room)
	}
	if e.From == Parked && e.To == Absent {
		m.place(s, e.Room).lastTry = true // forgotten: a message older than that finds nothing
	}
	early := false
	switch e.On {
	case evExpire.String():
		early = m.now < deadline(s, e.Room)
	case evStall.String():
		early = m.now.Sub(m.place(s, e.Room).moved) < DefaultStall
	}
	if early {
		m.broken("%s: room %d went to %s by %s before its time", s, e.Room, e.To, e.On)
	}
}

// checkUnbound: a peer that is gone holds no room.
func (m *model) checkUnbound(s Side, gone id.Incarnation) {
	for _, r := range m.site[s].book.rooms {
		if r.Peer == gone && (r.State.Live() || r.State == Early) {
			m.broken("%s: room %d is in %s with a peer that is gone", s, r.Room, r.State)
		}
	}
}

// checkStep are the laws of every state.
func (m *model) checkStep() {
	for s := Prefill; s <= Decode; s++ {
		n := &m.site[s]
		if n.book.Impossible() != 0 {
			m.broken("%s reached a cell that the guards exclude: %v", s, m.fx)
		}
		var counts [numStates]int
		for r := id.Room(1); int(r) <= m.sc.rooms; r++ {
			rec, p := n.book.rooms[r], &n.at[r-1]
			if rec == nil {
				rec = &Record{}
			} else if !rec.Freed {
				counts[rec.State]++
			}
			m.checkLeg(s, r, rec, p)
			m.checkHolding(s, r, rec, p)
			m.checkTime(s, r, rec)
		}
		for st := Parked; st < numStates; st++ {
			if n.book.counts[st] != counts[st] {
				m.broken("%s counts %d rooms in %s, and has %d", s, n.book.counts[st], st, counts[st])
			}
		}
	}
}

// checkLeg: a leg that was accepted has exactly one ending, and the one that its
// room came to.
func (m *model) checkLeg(s Side, r id.Room, rec *Record, p *place) {
	if p.leg != legIn {
		if rec.State.Live() || rec.State.Terminal() {
			m.broken("%s has room %d in %s without a leg", s, r, rec.State)
		}
		return
	}
	if rec.RID != rid(r) {
		m.broken("%s lost the request of room %d", s, r)
	}
	ended := int8(0)
	switch {
	case rec.State.Terminal():
		ended = 1
	case !rec.State.Live():
		m.broken("%s has room %d in %s with its leg", s, r, rec.State)
	}
	if p.answers+p.proceeds != ended {
		m.broken("%s: room %d in %s was answered %d times and proceeded %d times", s, r, rec.State, p.answers, p.proceeds)
	}
	want := Code("")
	switch {
	case rec.State == Failed && (rec.Cause == nil || rec.Cause.Code == Done):
		m.broken("%s failed room %d without a cause", s, r)
	case rec.State == Failed:
		want = rec.Cause.Code
	case rec.State == Success && s == Prefill:
		want = Done
	}
	if p.answer != want {
		m.broken("%s answered room %d in %s with %q; want %q", s, r, rec.State, p.answer, want)
	}
	if rec.State == Success && s == Decode && rec.imported != rec.Chunks(testChunk) {
		m.broken("decode goes on with room %d after %d of %d chunks", r, rec.imported, rec.Chunks(testChunk))
	}
}

// checkHolding: who holds what is what the state says, and what is in flight is
// what both ends have counted.
func (m *model) checkHolding(s Side, r id.Room, rec *Record, p *place) {
	ok := true
	waiting := p.queued || p.granting
	switch rec.State {
	case Absent, Parked, Early:
		ok = !p.held && !waiting
	case Prealloc:
		ok = waiting && !p.held
	case Bootstrapping:
		ok = s == Prefill && waiting && !p.held || s == Decode && p.held && p.seeking && m.down
	case Computing:
		ok = p.held && !p.stopped
	case WaitingForInput:
		ok = s == Prefill && waiting && p.paired && !p.held || s == Decode && p.held && !p.stopped
	case Transferring:
		ok = p.held && !p.stopped
	case Success:
		ok = rec.Freed || p.held && (s == Decode || p.stopped) || p.granting
	case Failed:
		ok = !p.queued && !p.seeking && (!p.held || p.stopped) && rec.stopped // or its worker waits for the word to free it
	}
	if ok && rec.Freed {
		ok = !p.held
	}
	if !ok {
		m.broken("%s: room %d in %s: queued %v (paired %v), held %v, stopped %v, seeking %v", s, r, rec.State, p.queued, p.paired, p.held, p.stopped, p.seeking)
	}
	if s == Prefill && rec.State == Transferring {
		if rec.outstanding != int64(p.air)*chunkBytes || rec.published-rec.settled != uint32(p.air) {
			m.broken("prefill counts %d bytes of room %d in flight, and %d chunks are", rec.outstanding, r, p.air)
		}
		if rec.outstanding > max(m.sc.window, chunkBytes) {
			m.broken("%d bytes of room %d are in flight, decode's window is %d", rec.outstanding, r, m.sc.window)
		}
		if ready := int(rec.Have / testChunk); p.air == 0 && int(rec.published)+ready < int(p.exported) {
			m.broken("prefill has %d chunks of room %d, %d are published, the window is empty and nobody will go on", p.exported, r, rec.published)
		}
		if before := min(int8(m.sc.have/testChunk), p.exported); rec.Have == m.sc.have && p.discarded != before {
			m.broken("prefill gave back %d chunks of room %d that decode has, want %d", p.discarded, r, before)
		}
	}
	if s == Decode && rec.State == Transferring {
		n := int64(0)
		for _, c := range m.bound {
			if c.room == r {
				n += chunkBytes
			}
		}
		if rec.held != n || n > max(rec.Window, chunkBytes) {
			m.broken("decode counts %d bytes of room %d as held, holds %d, and has room for %d", rec.held, r, n, rec.Window)
		}
	}
}

// checkTime: nothing waits longer than its bound, and the next bound has a timer.
// The bounds are written down once more here: Book.due is on trial.
func (m *model) checkTime(s Side, r id.Room, rec *Record) {
	if rec.State == Absent {
		return
	}
	bound := Mono(1 << 62)
	quarter := (rec.Deadline - rec.Since) / 4
	within := func(d time.Duration) Mono { return rec.Since + min(Mono(d), quarter) }
	switch {
	case rec.State == Parked:
		bound = rec.Since.After(DefaultPark)
	case rec.State == Early:
		bound = rec.Since.After(DefaultReady)
	case rec.State == Computing:
		bound = within(DefaultReady)
	case rec.State == Bootstrapping && s == Decode:
		bound = within(DefaultBootstrap)
	case rec.State == Transferring && s == Prefill && m.stallable(r, rec):
		bound = m.place(s, r).moved.After(DefaultStall)
	}
	if rec.State.Live() || rec.State == Success && s == Decode && !rec.Freed && !rec.stopped {
		bound = min(bound, deadline(s, r))
	}
	if bound == 1<<62 {
		return
	}
	if m.now >= bound && m.swept {
		m.broken("%s: room %d is still in %s, %v after its time", s, r, rec.State, m.now.Sub(bound))
	}
	b := m.site[s].book
	armed := rec.timerAt != 0 && rec.timerAt <= max(bound, 1) &&
		slices.ContainsFunc(b.timers, func(t timer) bool { return t.room == r && t.at == rec.timerAt })
	if at, ok := b.Next(); !armed || !ok || at > rec.timerAt {
		m.broken("%s: room %d waits in %s until %v and no timer is set for it", s, r, rec.State, bound)
	}
	if at, _, ok := b.due(rec); !ok || at != bound {
		m.broken("%s: room %d in %s is due at %v; by the rules, at %v", s, r, rec.State, at, bound)
	}
}

// stallable says that prefill waits for decode: bytes lie published, or every
// chunk is acknowledged and COMMIT is due.
func (m *model) stallable(r id.Room, rec *Record) bool {
	p := m.place(Prefill, r)
	return p.air > 0 || p.exported == m.sc.chunks() && rec.settled > 0
}
