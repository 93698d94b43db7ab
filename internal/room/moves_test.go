package room

import (
	"slices"

	"github.com/tandem-llm/tandem/internal/id"
)

// verb is a kind of move.
type verb uint8

const (
	doLeg verb = iota
	doOtherLeg
	doAdmit
	doGrant
	doCompute
	doDeliver
	doTwice
	doLose
	doForge
	doChunk
	doBadChunk
	doImport
	doAck
	doFree
	doConnect
	doCut
	doNotice
	doCrash
	doFence
	doAbort
	doFail
	doTick
	doDrain
	doYield
)

// move is one thing that may happen. i is the place of a message among those in
// flight.
type move struct {
	do   verb
	side Side
	room id.Room
	i    uint8
}

// pack makes a move one number, so that a history is a list of them.
func (k move) pack() uint32 {
	return uint32(k.do) | uint32(k.side)<<8 | uint32(k.room)<<12 | uint32(k.i)<<16
}

func unpack(v uint32) move {
	return move{verb(v & 0xff), Side(v >> 8 & 0xf), id.Room(v >> 12 & 0xf), uint8(v >> 16)}
}

func (m *model) may(f fault) bool {
	if m.used[f] >= m.sc.may[f] {
		return false
	}
	if m.sc.sum == 0 || f == tick {
		return true
	}
	n := 0
	for g := range numFaults {
		if g != tick {
			n += int(m.used[g])
		}
	}
	return n < m.sc.sum
}

// moves returns everything that may happen next.
func (m *model) moves(out []move) []move {
	out = out[:0]
	rooms := id.Room(m.sc.rooms)
	for s := Prefill; s <= Decode; s++ {
		for r := id.Room(1); r <= rooms; r++ {
			p := m.place(s, r)
			if p.leg == legOut {
				out = append(out, move{do: doLeg, side: s, room: r})
				if s == Decode && m.may(lie) {
					out = append(out, move{do: doOtherLeg, side: s, room: r})
				}
			}
			out = m.work(out, s, r)
			if p.leg != legRefused && m.may(abort) {
				out = append(out, move{do: doAbort, side: s, room: r})
			}
			if rec := m.rec(s, r); rec != nil && rec.State.Live() && m.may(break1) {
				out = append(out, move{do: doFail, side: s, room: r})
			}
			if m.admissible(s, r) && m.may(slow) {
				out = append(out, move{do: doGrant, side: s, room: r})
			}
		}
		for i := range m.wire[s] {
			if i > 0 && slices.Contains(m.wire[s][:i], m.wire[s][i]) {
				continue
			}
			k := move{side: s, i: uint8(i)}
			k.do = doDeliver
			out = append(out, k)
			if m.may(twin) {
				k.do = doTwice
				out = append(out, k)
			}
			if m.may(loss) {
				k.do = doLose
				out = append(out, k)
			}
			if m.wire[s][i].msg.Type == Commit && m.may(lie) {
				k.do = doForge
				out = append(out, k)
			}
		}
		if m.cut[s] {
			out = append(out, move{do: doNotice, side: s})
		}
		if m.gone[s] != 0 {
			out = append(out, move{do: doFence, side: s})
		}
		if m.may(crash) && m.gone[0] == 0 && m.gone[1] == 0 {
			out = append(out, move{do: doCrash, side: s})
		}
		if m.may(cut) && m.linked() {
			out = append(out, move{do: doCut, side: s})
		}
		if m.may(drain) && !m.site[s].book.draining {
			out = append(out, move{do: doDrain, side: s})
		}
	}
	out = m.flow(out)
	if len(m.data) > 0 && m.linked() && m.may(lie) {
		out = append(out, move{do: doBadChunk})
	}
	if m.down && m.reachable() {
		out = append(out, move{do: doConnect})
	}
	if m.may(tick) {
		if _, ok := m.next(); ok {
			out = append(out, move{do: doTick})
		}
	}
	return out
}

// work appends what a worker can do for a room by itself.
func (m *model) work(out []move, s Side, r id.Room) []move {
	p := m.place(s, r)
	if m.admissible(s, r) || p.granting {
		out = append(out, move{do: doAdmit, side: s, room: r})
	}
	if s == Prefill && p.held && !p.stopped && p.exported < m.sc.chunks() {
		out = append(out, move{do: doCompute, side: s, room: r})
	}
	if s == Prefill && m.rec(s, r) != nil && m.rec(s, r).State == Computing && m.pressed() {
		out = append(out, move{do: doYield, side: s, room: r})
	}
	if m.freeable(s, r) {
		out = append(out, move{do: doFree, side: s, room: r})
	}
	return out
}

// flow appends what the data plane can do.
func (m *model) flow(out []move) []move {
	if len(m.data) > 0 && m.linked() {
		out = append(out, move{do: doChunk})
	}
	if len(m.bound) > 0 {
		out = append(out, move{do: doImport})
	}
	if len(m.acks) > 0 && m.linked() {
		out = append(out, move{do: doAck})
	}
	return out
}

func (m *model) linked() bool { return !m.cut[0] && !m.cut[1] && m.gone[Prefill] == 0 }

// calm says that both sides know of each other what is so: a session can come.
func (m *model) calm() bool { return !m.cut[0] && !m.cut[1] && m.gone[0] == 0 && m.gone[1] == 0 }

// reachable says that decode can open a session: prefill may learn from it that
// the decode of before is gone.
func (m *model) reachable() bool { return !m.cut[0] && !m.cut[1] && m.gone[Decode] == 0 }

func (m *model) admissible(s Side, r id.Room) bool {
	p := m.place(s, r)
	if !p.queued || p.granting || s == Prefill && p.evicted && !p.paired {
		return false
	}
	return m.taken(s) < m.sc.slots
}

// pressed says that a room with READY waits for memory at prefill.
func (m *model) pressed() bool {
	for _, p := range m.site[Prefill].at {
		if p.queued && p.paired && m.taken(Prefill) >= m.sc.slots {
			return true
		}
	}
	return false
}

func (m *model) taken(s Side) (n int8) {
	for _, p := range m.site[s].at {
		if p.held || p.granting {
			n++
		}
	}
	return n
}

func (m *model) freeable(s Side, r id.Room) bool {
	rec, p := m.rec(s, r), m.place(s, r)
	if rec == nil || !rec.State.Terminal() || rec.Freed || p.granting || s == Decode && m.importing(r) {
		return false
	}
	return !p.held || p.air == 0 && (p.stopped || s == Decode && rec.State == Success) // the generation ends
}

func (m *model) importing(r id.Room) bool {
	return slices.ContainsFunc(m.bound, func(c piece) bool { return c.room == r })
}

// next is when something happens by itself.
func (m *model) next() (Mono, bool) {
	at, ok := Mono(0), false
	for s := range m.site {
		for _, r := range m.site[s].book.rooms {
			if due, _, has := m.site[s].book.due(r); has && (!ok || due < at) {
				at, ok = due, true
			}
		}
		if t, has := m.site[s].book.parked.next(); has && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if f := m.downAt + fence; ok && m.down && f > m.now && f < at {
		at = f
	}
	return max(at, m.now), ok
}

// rid is the request of a room.
func rid(r id.Room) id.RID { return [...]id.RID{"", "r1", "r2"}[r] }

var (
	clientGone = [2]*Cause{{ClientGone, "prefill's leg was closed"}, {ClientGone, "decode's leg was closed"}}
	engineDead = [2]*Cause{{EngineFailed, "prefill's engine"}, {EngineFailed, "decode's engine"}}
	linkBroke  = &Cause{TransferLost, "the data connection broke"}
	peerGone   = &Cause{PeerGone, "fenced"}
)
