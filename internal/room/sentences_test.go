package room

import "fmt"

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
