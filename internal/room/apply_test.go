package room

import (
	"slices"

	"github.com/tandem-llm/tandem/internal/id"
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
