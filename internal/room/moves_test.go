package room

import (
	"fmt"
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
// flight. In six bytes it also names a history: see graph in explore_test.go.
type move struct {
	do   verb
	side Side
	room id.Room
	i    uint8
}

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

// apply makes a move happen, and checks the laws of a single step.
func (m *model) apply(k move) {
	m.fx, m.swept = m.fx[:0], k.do == doTick
	s, r := k.side, k.room
	p := &m.site[s].at[max(r, 1)-1]
	switch k.do {
	case doLeg, doOtherLeg:
		l := Leg{Room: r, RID: rid(r), Tokens: m.sc.tokens, Deadline: deadline(s, r)}
		if s == Decode {
			l.Window = m.sc.window
		}
		if k.do == doOtherLeg {
			m.used[lie]++
			l.Digest = Digest{1}
		}
		p.leg = legIn
		m.perform(s, m.book(s).LegArrived(m.now, l))
	case doGrant:
		m.used[slow]++
		p.queued, p.granting = false, true
	case doAdmit:
		m.admit(s, r)
	case doCompute:
		rec := Record{Leg: Leg{Tokens: m.sc.tokens}}
		_, _, last := rec.span(uint32(p.exported), testChunk)
		p.exported++
		m.perform(s, m.book(s).Exported(m.now, r, chunkBytes, uint64(p.exported), last))
	case doDeliver:
		m.deliver(s, m.pick(s, k.i))
	case doTwice:
		m.used[twin]++
		m.deliver(s, m.wire[s][k.i])
	case doLose:
		m.used[loss]++
		m.pick(s, k.i)
		m.lost = true
		m.hangUp()
	case doForge:
		m.used[lie]++
		c := m.pick(s, k.i)
		c.msg.Sum ^= 42
		m.deliver(s, c)
	case doChunk:
		m.chunk(0)
	case doBadChunk:
		m.used[lie]++
		m.chunk(1)
	case doImport:
		c := m.bound[0]
		m.bound = m.bound[1:]
		if c.from == m.site[Prefill].inc && !c.void {
			m.acks = append(m.acks, c)
		}
		m.perform(Decode, m.book(Decode).Imported(m.now, c.room, c.gen, chunkBytes, uint64(c.idx)+1))
	case doAck:
		c := m.acks[0]
		m.acks = m.acks[1:]
		m.settled(c, nil)
	case doFree:
		*p = place{leg: p.leg, lastTry: p.lastTry, answers: p.answers, proceeds: p.proceeds, answer: p.answer}
		m.perform(s, m.book(s).Freed(m.now, r))
	case doConnect:
		m.connect()
	case doCut:
		m.used[cut]++
		m.cut = [2]bool{true, true}
		m.notice(s)
	case doNotice:
		m.notice(s)
	case doCrash:
		m.used[crash]++
		m.crash(s)
	case doFence:
		m.fence(s)
	case doAbort:
		m.used[abort]++
		m.perform(s, m.book(s).Abort(m.now, rid(r), 0, clientGone[s]))
	case doFail:
		m.used[break1]++
		m.perform(s, m.book(s).Fail(m.now, r, engineDead[s]))
	case doTick:
		m.used[tick]++
		m.tick()
	case doYield:
		m.perform(s, m.book(s).Yield(m.now, r))
	case doDrain:
		m.used[drain]++
		m.perform(s, m.book(s).Drain(m.now))
	}
	m.checkStep()
}

func (m *model) pick(s Side, i uint8) packet {
	p := m.wire[s][i]
	m.wire[s] = slices.Concat(m.wire[s][:i], m.wire[s][i+1:])
	return p
}

func (m *model) admit(s Side, r id.Room) {
	p := m.place(s, r)
	p.queued, p.granting, p.held, p.stopped, p.exported = false, false, true, false, 0
	have := int32(0)
	if s == Decode {
		have = m.sc.have
	} else if !p.paired {
		p.evicted = true // it is admitted early at most once
	}
	m.perform(s, m.book(s).Admitted(m.now, r, have))
}

func (m *model) deliver(s Side, p packet) {
	before := m.brief(s, p.msg.Room)
	fx := m.book(s).Message(m.now, p.from, p.msg)
	m.checkMessage(s, p, before, fx)
	m.perform(s, fx)
}

// chunk moves the oldest chunk to decode; skew makes it another than it is.
func (m *model) chunk(skew uint32) {
	c := m.data[0]
	m.data = m.data[1:]
	whole := Record{Leg: Leg{Tokens: m.sc.tokens}}
	p0, p1, last := whole.span(uint32(c.idx), testChunk)
	take := false
	if c.to == m.site[Decode].inc {
		before := m.brief(Decode, c.room)
		var fx []Effect
		take, fx = m.book(Decode).Chunk(m.now, c.from, c.gen, c.room, c.seq+skew, p0, p1, chunkBytes, last)
		m.checkChunk(c, skew, take, before, fx)
		m.perform(Decode, fx)
	}
	if take {
		m.bound = append(m.bound, c)
	} else {
		m.acks = append(m.acks, c)
	}
}

func (m *model) settled(c piece, cause *Cause) {
	p := m.place(Prefill, c.room)
	p.air--
	p.moved = m.now
	m.perform(Prefill, m.book(Prefill).Settled(m.now, c.room, c.gen, chunkBytes, cause))
}

func (m *model) hangUp() {
	if !m.down {
		m.down, m.downAt = true, m.now
	}
}

// connect brings a session up. Both sides repeat what may have been lost.
func (m *model) connect() {
	m.down, m.lost = false, false
	for s := range m.site {
		n, peer := &m.site[s], m.site[Side(s).other()].inc
		for r := id.Room(1); int(r) <= m.sc.rooms; r++ {
			if rec := n.book.rooms[r]; rec != nil && rec.State.Terminal() && m.now.Sub(rec.Since) >= DefaultReady {
				n.at[r-1].lastTry = true // BoundTo does not promise to repeat this one
			}
		}
		for _, r := range n.book.BoundTo(peer) {
			m.perform(Side(s), m.book(Side(s)).PeerUp(m.now, r, peer, m.fresh(r)))
		}
	}
	for r := id.Room(1); int(r) <= m.sc.rooms; r++ {
		m.seek(r)
	}
}

// fresh returns a generation that the room has not had.
func (m *model) fresh(r id.Room) id.Generation {
	g := id.Generation(m.site[Decode].inc)*100 + id.Generation(r)*10
	if rec := m.rec(Decode, r); rec != nil && rec.Gen != 0 {
		g++
	}
	return g
}

func (m *model) seek(r id.Room) {
	if p := m.place(Decode, r); p.seeking && !m.down {
		p.seeking = false
		inc := m.site[Prefill].inc
		m.perform(Decode, m.book(Decode).PeerUp(m.now, r, inc, m.fresh(r)))
	}
}

// notice tells one side that the data connection broke.
func (m *model) notice(s Side) {
	m.cut[s] = false
	m.hangUp()
	if s == Prefill {
		m.settleAll(linkBroke)
	}
	m.perform(s, m.book(s).PeerDown(m.now, m.site[s.other()].inc, linkBroke))
	m.checkUnbound(s, m.site[s.other()].inc)
}

func (m *model) settleAll(cause *Cause) {
	lost := slices.Concat(m.acks, m.bound, m.data)
	m.data, m.acks, m.bound = nil, nil, slices.Clone(m.bound)
	for i := range m.bound { // decode may still import what it took
		m.bound[i].void = true
	}
	for _, c := range lost {
		if c.from == m.site[Prefill].inc && !c.void {
			m.settled(c, cause)
		}
	}
}

func (m *model) crash(s Side) {
	old := &m.site[s]
	o := s.other()
	m.gone[o] = old.inc
	m.wire[s] = nil
	m.hangUp()
	if s == Prefill {
		m.data, m.acks = nil, nil
	} else {
		m.data = slices.Concat(m.acks, m.bound, m.data)
		m.bound, m.acks = nil, nil
	}
	m.cut[s] = false
	m.site[s] = site{side: s, inc: old.inc + 1, book: New(s, testChunk, Limits{})}
	m.owned[s] = true
	m.site[s].book.now = m.now
}

// fence tells one side that a peer's process is gone: nothing of it arrives any more.
func (m *model) fence(s Side) {
	inc := m.gone[s]
	m.gone[s] = 0
	m.cut[s] = false
	before := len(m.wire[s])
	m.wire[s] = slices.DeleteFunc(slices.Clone(m.wire[s]), func(p packet) bool { return p.from == inc })
	m.lost = m.lost || len(m.wire[s]) < before
	if s == Prefill {
		m.settleAll(peerGone)
	}
	m.perform(s, m.book(s).PeerDown(m.now, inc, peerGone))
	m.checkUnbound(s, inc)
}

// tick lets time pass until something happens by itself.
func (m *model) tick() {
	at, ok := m.next()
	if !ok {
		return
	}
	m.now = at
	for s := Prefill; s <= Decode; s++ {
		for range 4 { // a deadline may lead to one that has passed as well
			m.perform(s, m.book(s).Sweep(m.now))
			if t, ok := m.site[s].book.Next(); !ok || t > m.now {
				break
			}
		}
	}
	if m.down && m.now >= m.downAt+fence && m.now-m.downAt < 2*fence && m.calm() {
		for s := Prefill; s <= Decode; s++ {
			m.gone[s] = m.site[s.other()].inc
			m.fence(s)
		}
		m.downAt = m.now - 2*fence // once
	}
}

// perform carries out effects as a worker would.
func (m *model) perform(s Side, fx []Effect) {
	m.fx = append(m.fx, fx...)
	n, o := &m.site[s], &m.site[s.other()]
	for _, e := range fx {
		switch e := e.(type) {
		case Send:
			m.checkSend(s, e)
			if e.To == o.inc {
				m.wire[s.other()] = append(m.wire[s.other()], packet{n.inc, e.Msg})
			}
		case Enqueue:
			p := m.place(s, e.Room)
			if !p.held && !p.granting {
				p.queued = true
			}
			p.paired = e.Paired
		case Evict:
			p := m.place(s, e.Room)
			if p.air > 0 {
				m.broken("room %d was evicted while %d of its chunks are read", e.Room, p.air)
			}
			p.held, p.queued, p.exported = false, true, 0
		case Seek:
			m.place(s, e.Room).seeking = true
			m.seek(e.Room)
		case Publish:
			m.publish(e)
		case Discard:
			p := m.place(s, e.Room)
			if int32(e.Index)*testChunk >= m.sc.have || int8(e.Index) != p.discarded {
				m.broken("chunk %d of room %d was given back; decode has %d tokens", e.Index, e.Room, m.sc.have)
			}
			p.discarded++
		case StopWork:
			p := m.place(s, e.Room)
			p.queued, p.seeking = false, false
			p.stopped = p.held
		case Answer:
			p := m.place(s, e.Room)
			p.answers++
			p.answer = e.Cause.Code
		case Proceed:
			m.place(s, e.Room).proceeds++
		case Refuse:
			if p := m.place(s, e.Room); p.leg == legIn && (n.book.rooms[e.Room] == nil || n.book.rooms[e.Room].RID == "") {
				p.leg = legRefused
			}
		case Moved:
			m.checkMoved(s, e)
		}
	}
}

func (m *model) publish(e Publish) {
	p := m.place(Prefill, e.Room)
	if !p.held || p.stopped || int8(e.Index) >= p.exported {
		m.broken("chunk %d of room %d was published, and its memory is not there", e.Index, e.Room)
	}
	if int32(e.Index)*testChunk < m.sc.have {
		m.broken("chunk %d of room %d travels, and decode has it", e.Index, e.Room)
	}
	if p.air == 0 {
		p.moved = m.now
	}
	p.air++
	c := piece{from: m.site[Prefill].inc, to: e.To, room: e.Room, gen: e.Gen, seq: e.Seq, idx: int8(e.Index)}
	if e.To == m.site[Decode].inc || e.To == m.gone[Prefill] {
		m.data = append(m.data, c)
	} else { // nobody is there to take it
		m.settled(c, linkBroke)
	}
}

// sentence says what a move is, seen from the state before it.
func (m *model) sentence(k move) string {
	what := func(v string) string {
		p := m.wire[k.side][k.i]
		return fmt.Sprintf("%s of room %d %s (to %s, generation %d%s)", p.msg.Type, p.msg.Room, v, k.side, p.msg.Gen, because(p.msg))
	}
	switch k.do {
	case doLeg:
		return fmt.Sprintf("the leg of room %d arrives at %s", k.room, k.side)
	case doOtherLeg:
		return fmt.Sprintf("the leg of room %d arrives at %s with other tokens", k.room, k.side)
	case doAdmit:
		return fmt.Sprintf("%s admits room %d", k.side, k.room)
	case doGrant:
		return fmt.Sprintf("%s takes resources for room %d and has yet to tell its book", k.side, k.room)
	case doCompute:
		return fmt.Sprintf("prefill exports chunk %d of room %d", m.place(Prefill, k.room).exported, k.room)
	case doDeliver:
		return what("arrives")
	case doTwice:
		return what("arrives, and will arrive again")
	case doLose:
		return what("is lost with its session")
	case doForge:
		return what("arrives with another digest")
	case doChunk, doBadChunk:
		s := fmt.Sprintf("chunk %d of room %d arrives at decode", m.data[0].seq, m.data[0].room)
		if k.do == doBadChunk {
			s += " as another one"
		}
		return s
	case doImport:
		return fmt.Sprintf("decode imports chunk %d of room %d", m.bound[0].seq, m.bound[0].room)
	case doAck:
		return fmt.Sprintf("the acknowledgement of chunk %d of room %d arrives", m.acks[0].seq, m.acks[0].room)
	case doFree:
		return fmt.Sprintf("%s has all memory of room %d back", k.side, k.room)
	case doConnect:
		return "a session comes up"
	case doCut:
		return fmt.Sprintf("the data connection breaks; %s notices first", k.side)
	case doNotice:
		return fmt.Sprintf("%s notices that the data connection broke", k.side)
	case doCrash:
		return fmt.Sprintf("%s restarts", k.side)
	case doFence:
		return fmt.Sprintf("%s hears that its peer restarted", k.side)
	case doAbort:
		return fmt.Sprintf("the client of room %d leaves %s", k.room, k.side)
	case doFail:
		return fmt.Sprintf("%s's engine fails room %d", k.side, k.room)
	case doTick:
		at, _ := m.next()
		return fmt.Sprintf("nothing happens for %v", at.Sub(m.now))
	case doYield:
		return fmt.Sprintf("prefill takes room %d's memory for one with READY", k.room)
	case doDrain:
		return fmt.Sprintf("%s drains", k.side)
	}
	return fmt.Sprint(k)
}

func because(m Message) string {
	if m.Cause.Code != "" {
		return ", " + m.Cause.Error()
	}
	return ""
}
