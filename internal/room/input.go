package room

import "github.com/tandem-llm/tandem/internal/id"

// known returns a room's record, or a new Absent one that the map does not hold.
func (b *Book) known(r id.Room) *Record {
	if rec, ok := b.rooms[r]; ok {
		return rec
	}
	return &Record{Leg: Leg{Room: r}}
}

// LegArrived opens a room for the router's leg. An abort that came before it is
// applied at once. While draining, legs are refused and leave no trace.
func (b *Book) LegArrived(now Mono, leg Leg) []Effect {
	b.begin(now)
	r := b.known(leg.Room)
	if other, ok := b.rids[leg.RID]; ok && other != leg.Room && !b.rooms[other].State.Terminal() {
		b.emit(Refuse{Room: leg.Room, RID: leg.RID, Cause: Because(DuplicateRoom, "request %s is in progress here as room %d", leg.RID, other)})
		return b.out
	}
	if b.draining {
		b.emit(Refuse{Room: leg.Room, RID: leg.RID, Cause: Because(Draining, "this worker takes no new requests")})
		return b.out
	}
	kind := evLeg
	var cause *Cause
	if r.State == Early && (r.ready.Tokens != leg.Tokens || r.ready.Digest != leg.Digest) {
		kind, cause = evLegMismatch, mismatch(leg.Tokens, r.ready.Tokens)
	}
	b.step(r, occurrence{kind: kind, leg: &leg, cause: cause})
	for _, a := range []attempt{{leg.RID, leg.Room}, {leg.RID, 0}} {
		if c := b.parked.take(a); c != nil && r.State.Live() {
			b.step(r, occurrence{kind: evAbort, cause: c})
		}
	}
	return b.out
}

func mismatch(here, there int32) *Cause {
	return Because(TokenizationMismatch, "prefill has %d prompt tokens and decode %d, or their ids differ: the two workers' models or templates differ", here, there)
}

// Admitted says that the worker took a room's resources. have is how many of the
// prompt's tokens decode's own cache holds and has pinned (decode; a multiple of
// C, at most n−2): only what follows travels.
func (b *Book) Admitted(now Mono, room id.Room, have int32) []Effect {
	b.begin(now)
	r := b.known(room)
	if r.State == Prealloc {
		r.Have = have
	}
	b.step(r, occurrence{kind: evAdmit})
	return b.out
}

// Yield takes a room that computes without READY out of its resources before its time
// is over, because one with READY waits for them. For any other room it is nothing.
func (b *Book) Yield(now Mono, room id.Room) []Effect {
	b.begin(now)
	if r := b.rooms[room]; r != nil && r.State == Computing {
		b.step(r, occurrence{kind: evLapse})
	}
	return b.out
}

// Exported says that the engine wrote the next chunk of a room (prefill): its
// payload bytes and their kv.Sum, and whether it is the last.
func (b *Book) Exported(now Mono, room id.Room, bytes int, sum uint64, last bool) []Effect {
	b.begin(now)
	r := b.known(room)
	if r.State == Computing || r.State == Transferring {
		r.exported = append(r.exported, exported{bytes, sum})
		r.complete = last
	}
	b.step(r, occurrence{kind: evExported})
	return b.out
}

// Settled says that the data plane is finished with a published chunk. err's
// cause, if any, ends the room.
func (b *Book) Settled(now Mono, room id.Room, gen id.Generation, bytes int, cause *Cause) []Effect {
	b.begin(now)
	r := b.known(room)
	if r.State.Live() && r.Gen == gen {
		r.outstanding -= int64(bytes)
		r.settled++
		if r.outstanding < 0 || r.settled > r.published { // settled what was never published
			b.impossed++
			b.drops["impossible"]++
		}
		r.moved = b.now
	}
	switch {
	case r.State.Live() && r.Gen != gen:
		b.step(r, occurrence{kind: evForeign})
	case cause != nil && r.State.Live():
		b.step(r, occurrence{kind: evPeerDown, cause: cause})
	default:
		b.step(r, occurrence{kind: evSettled})
	}
	return b.out
}

// PeerUp says that a session with the other worker of a room is up, or up again.
// gen is a fresh generation, used if this is the room's first READY (decode).
func (b *Book) PeerUp(now Mono, room id.Room, peer id.Incarnation, gen id.Generation) []Effect {
	b.begin(now)
	r := b.known(room)
	switch {
	case r.Peer == 0:
		b.step(r, occurrence{kind: evPeerUp, from: peer, gen: gen})
	case r.Peer == peer:
		b.step(r, occurrence{kind: evPeerUp, from: peer, gen: r.Gen})
	default:
		b.step(r, occurrence{kind: evForeign, from: peer})
	}
	return b.out
}

// PeerDown says that a peer was fenced, or that its data connection broke: every
// room bound to it ends with the cause.
func (b *Book) PeerDown(now Mono, peer id.Incarnation, cause *Cause) []Effect {
	b.begin(now)
	for _, r := range b.sorted() {
		if r.Peer == peer {
			b.step(r, occurrence{kind: evPeerDown, from: peer, cause: cause})
		}
	}
	return b.out
}

// Message takes a room message from a session.
func (b *Book) Message(now Mono, from id.Incarnation, m Message) []Effect {
	b.begin(now)
	r := b.known(m.Room)
	ev := occurrence{from: from, msg: m, gen: m.Gen}
	switch m.Type {
	case Ready:
		ev.kind, ev.cause = b.classifyReady(r, from, m)
	case Commit:
		ev.kind, ev.cause = b.classifyCommit(r, from, m)
	case Abort, Fail:
		ev.kind = evPeerAbort
		if m.Type == Fail {
			ev.kind = evPeerFail
		}
		c := m.Cause
		ev.cause = &c
		if !b.speaksFor(r, from, m.Gen) {
			ev.kind = evForeign
		}
	case AbortAck:
		ev.kind = evAbortAck
	default:
		b.drop(r, "type")
		return b.out
	}
	b.step(r, ev)
	return b.out
}

// speaksFor says whether a peer's ABORT or FAIL is about this hand-over. Before
// READY any session may end a room by its number; from READY on both
// incarnations and the generation must match.
func (b *Book) speaksFor(r *Record, from id.Incarnation, gen id.Generation) bool {
	if r.Peer != 0 {
		return r.Peer == from && r.Gen == gen
	}
	return b.side == Prefill || r.State == Absent || r.State.Terminal()
}

func (b *Book) classifyReady(r *Record, from id.Incarnation, m Message) (event, *Cause) {
	switch {
	case b.side == Decode || m.Gen == 0 || m.Have < 0 || m.Have%b.chunk != 0 || m.Have >= max(m.Tokens-1, 1) || m.Window < 0:
		return evForeign, nil // no decode of ours sends this
	case r.Peer == from && r.Gen == m.Gen:
		return evReadyAgain, nil
	case r.Peer != 0:
		return evReadyOther, nil
	case (r.State == Bootstrapping || r.State == Computing) && (r.Tokens != m.Tokens || r.Digest != m.Digest):
		return evReadyMismatch, mismatch(r.Tokens, m.Tokens)
	}
	return evReady, nil
}

func (b *Book) classifyCommit(r *Record, from id.Incarnation, m Message) (event, *Cause) {
	switch {
	case b.side == Decode || r.Peer != from || r.Gen != m.Gen:
		return evForeign, nil
	case r.State.Terminal():
		return evCommit, nil
	case r.published == r.Chunks(b.chunk) && m.Chunks == r.published && m.Sum == r.sum:
		return evCommit, nil
	}
	return evCommitBad, Because(CommitMismatch, "COMMIT for %d chunks with digest %016x; %d of %d were published, digest %016x",
		m.Chunks, m.Sum, r.published, r.Chunks(b.chunk), r.sum)
}

// Chunk asks whether an arriving chunk is to be taken into the import buffer
// (decode): it must be the next one of the hand-over, borders and all, and fit
// the window. Otherwise its bytes are to be discarded.
func (b *Book) Chunk(now Mono, from id.Incarnation, gen id.Generation, room id.Room, seq uint32, p0, p1 int32, bytes int, last bool) (take bool, fx []Effect) {
	b.begin(now)
	r := b.known(room)
	ev := occurrence{kind: evChunk, from: from, gen: gen}
	if r.Peer != from || r.Gen != gen {
		ev.kind = evForeign
	} else if !r.State.Terminal() {
		if want0, want1, wantLast := r.span(r.taken, b.chunk); seq != r.taken || p0 != want0 || p1 != want1 || last != wantLast {
			ev.kind = evChunkBad
			ev.cause = Because(Protocol, "chunk %d [%d, %d) last=%v arrived where chunk %d [%d, %d) last=%v was due", seq, p0, p1, last, r.taken, want0, want1, wantLast)
		} else if r.held > 0 && r.held+int64(bytes) > r.Window {
			ev.kind = evChunkBad
			ev.cause = Because(Protocol, "chunk of %d bytes exceeds the window: %d of %d bytes are held", bytes, r.held, r.Window)
		}
	}
	b.step(r, ev)
	if ev.kind == evChunk && r.State == Transferring {
		r.held += int64(bytes)
		return true, b.out
	}
	return false, b.out
}

// Imported says that the engine imported the next chunk (decode).
func (b *Book) Imported(now Mono, room id.Room, gen id.Generation, bytes int, sum uint64) []Effect {
	b.begin(now)
	r := b.known(room)
	kind := evImported
	if r.Gen != gen {
		kind = evForeign
	} else if r.State == Transferring {
		r.held -= int64(bytes)
		r.imported++
		r.sum = FoldSum(r.sum, sum)
		if r.imported == r.Chunks(b.chunk) {
			kind = evImportedLast
		}
	}
	b.step(r, occurrence{kind: kind})
	return b.out
}

// Abort ends a request by its id: the client left, the router or an operator
// asked for it. With a room it ends only the attempt in that room, so that a late
// abort of one attempt cannot reach the next. An abort for an unknown request is
// parked and applied when the request arrives.
func (b *Book) Abort(now Mono, rid id.RID, rm id.Room, cause *Cause) []Effect {
	b.begin(now)
	at := rm
	if at == 0 {
		at = b.rids[rid]
	}
	if r := b.rooms[at]; r != nil && r.RID == rid && (r.State.Live() || r.State.Terminal()) {
		b.step(r, occurrence{kind: evAbort, cause: cause})
		return b.out
	}
	if n := b.parked.put(attempt{rid, rm}, cause, b.now.After(b.limits.Park)); n > 0 {
		b.drops["parked_overflow"] += uint64(n)
	}
	return b.out
}

// Fail ends a room because of a fault on this worker.
func (b *Book) Fail(now Mono, room id.Room, cause *Cause) []Effect {
	b.begin(now)
	b.step(b.known(room), occurrence{kind: evFail, cause: cause})
	return b.out
}

// Freed says that no memory of an ended room is in use any more.
func (b *Book) Freed(now Mono, room id.Room) []Effect {
	b.begin(now)
	b.step(b.known(room), occurrence{kind: evFreed})
	return b.out
}

// Drain makes the book refuse new legs and ends the rooms that no peer waits for.
func (b *Book) Drain(now Mono) []Effect {
	b.begin(now)
	b.draining = true
	for _, r := range b.sorted() {
		b.step(r, occurrence{kind: evDrain, cause: Because(Draining, "this worker is leaving service")})
	}
	return b.out
}
