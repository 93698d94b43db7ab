package room

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
