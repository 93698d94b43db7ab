package room

import "github.com/tandem-llm/tandem/internal/id"

// occurrence is a classified event with what it brought.
type occurrence struct {
	kind  event
	from  id.Incarnation // the peer it came from; 0 for our own
	msg   Message
	leg   *Leg
	cause *Cause
	gen   id.Generation
}

func (b *Book) emit(e Effect) { b.out = append(b.out, e) }

func (b *Book) drop(r *Record, reason string) {
	b.drops[reason]++
	b.emit(Drop{Room: r.Room, Reason: reason})
}

// perform does one action of a transition.
func (b *Book) perform(a action, r *Record, ev occurrence) {
	switch a {
	case nothing:
	case adoptLeg:
		have, window := r.Have, r.Window
		r.Leg = *ev.leg
		if b.side == Prefill { // READY says these, and it may have come first
			r.Have, r.Window = have, window
		}
		b.rids[r.RID] = r.Room
	case adoptReady:
		r.Peer, r.Gen = ev.from, ev.gen
		if b.side == Prefill {
			r.Window, r.Have = ev.msg.Window, ev.msg.Have
			r.ready = ev.msg
		}
	case adoptCause:
		if r.Cause == nil {
			r.Cause = ev.cause
		}
	case enqueue:
		b.emit(Enqueue{Room: r.Room})
	case enqueuePaired:
		b.emit(Enqueue{Room: r.Room, Paired: true})
	case evict:
		r.exported, r.complete, r.sum = nil, false, 0
		b.emit(Evict{Room: r.Room})
	case seek:
		b.emit(Seek{Room: r.Room})
	case sendReady:
		b.emit(Send{r.Peer, Message{Type: Ready, Room: r.Room, Gen: r.Gen, Tokens: r.Tokens, Digest: r.Digest, Have: r.Have, Window: r.Window}})
	case sendCommit:
		b.emit(Send{r.Peer, Message{Type: Commit, Room: r.Room, Gen: r.Gen, Chunks: r.imported, Sum: r.sum}})
	case sendAck:
		b.emit(Send{ev.from, Message{Type: AbortAck, Room: r.Room, Gen: ev.msg.Gen}})
	case tell:
		if r.Peer != 0 {
			b.emit(Send{r.Peer, ending(r.Room, r.Gen, r.Cause)})
		}
	case reply:
		c := r.Cause
		if c == nil {
			c = Because(RoomTaken, "room %d has completed another hand-over", r.Room)
		}
		b.emit(Send{ev.from, ending(r.Room, ev.gen, c)})
	case replyTaken:
		b.emit(Send{ev.from, ending(r.Room, ev.gen, Because(RoomTaken, "room %d is paired with another decode", r.Room))})
	case publish:
		b.publish(r)
	case take:
		r.taken++
	case stop:
		r.stopped = true
		c := r.Cause
		if c == nil {
			c = ev.cause
		}
		if c == nil {
			c = &Cause{Code: Done}
		}
		b.emit(StopWork{Room: r.Room, To: r.Peer, Gen: r.Gen, Cause: c})
	case answer:
		c := r.Cause
		if c == nil {
			c = &Cause{Code: Done}
		}
		b.emit(Answer{Room: r.Room, Cause: c})
	case proceed:
		b.emit(Proceed{Room: r.Room})
	case refuse:
		b.emit(Refuse{Room: ev.leg.Room, RID: ev.leg.RID, Cause: Because(DuplicateRoom, "room %d is known here already (%s)", ev.leg.Room, r.State)})
	case bury:
		b.bury(r)
	case dropLate:
		b.drop(r, "late")
	case dropForeign:
		b.drop(r, "foreign")
	case dropTwice:
		b.drop(r, "duplicate")
	case dropUnknown:
		b.drop(r, "unknown")
	case never:
		b.impossed++
		b.drop(r, "impossible")
	}
}

// ending returns the message that ends a room for this cause: an abort is not a
// failure.
func ending(r id.Room, g id.Generation, c *Cause) Message {
	t := Fail
	if c.Outcome() == Aborted {
		t = Abort
	}
	return Message{Type: t, Room: r, Gen: g, Cause: *c}
}

// publish hands exported chunks to the data plane, in order from Have on, while
// decode's window has room. A chunk larger than the whole window goes alone.
func (b *Book) publish(r *Record) {
	first := int(r.Have / b.chunk)
	for r.discarded < min(first, len(r.exported)) { // decode has these
		b.emit(Discard{Room: r.Room, Index: r.discarded})
		r.discarded++
	}
	for first+int(r.published) < len(r.exported) {
		c := r.exported[first+int(r.published)]
		if r.outstanding > 0 && r.outstanding+int64(c.bytes) > r.Window {
			return
		}
		if r.outstanding == 0 {
			r.moved = b.now
		}
		b.emit(Publish{Room: r.Room, To: r.Peer, Gen: r.Gen, Seq: r.published, Index: first + int(r.published)})
		r.published++
		r.outstanding += int64(c.bytes)
		r.sum = FoldSum(r.sum, c.sum)
	}
}
