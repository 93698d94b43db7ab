package room

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

func TestADuplicateLegIsRefusedInEveryStateThatHasOne(t *testing.T) {
	for _, side := range bothSides {
		for _, s := range sideStates[side] {
			if !s.Live() && !s.Terminal() {
				continue
			}
			w, n, _ := inState(t, side, s)
			for _, rid := range []id.RID{"1", "another"} {
				fx := n.book.LegArrived(w.now, Leg{Room: room1, RID: rid, Tokens: 10, Deadline: soon(w)})
				r, ok := first[Refuse](fx)
				if !ok || len(fx) != 1 || r.RID != rid || r.Cause.Code != DuplicateRoom || !strings.Contains(r.Cause.Detail, "known here already") {
					t.Errorf("%s in %s answered a second leg with %+v", side, s, fx)
				}
			}
			want(t, n, s)
		}
	}
}

func TestAPeerThatIsGoneHoldsNoRoomOfALeg(t *testing.T) {
	for _, side := range bothSides {
		for _, s := range sideStates[side] {
			w, n, gen := inState(t, side, s)
			peer := []*node{w.d, w.p}[side].inc
			fx := n.book.PeerDown(w.now, peer, Because(PeerGone, "test"))
			n.perform(fx)
			if now := state(n); gen != 0 && (now.Live() || now == Early) {
				t.Errorf("%s in %s is in %s with a peer that is gone", side, s, now)
			} else if (s == Parked || s.Terminal()) && (now != s || len(fx) != 0) {
				t.Errorf("%s in %s had ended, and is in %s: %v", side, s, now, fx)
			}
			if told := sent(fx); gen != 0 && s.Live() && (len(told) != 1 || told[0].Type != Fail) {
				t.Errorf("%s in %s: a peer whose connection broke may live, and was told %v", side, s, told)
			}
		}
	}
}

func TestARoomHasOneTimerHoweverMuchHappens(t *testing.T) {
	w, n, _ := inState(t, Decode, WaitingForInput)
	before := len(n.book.timers)
	for range 100 {
		n.book.PeerUp(w.now, room1, w.p.inc, 5)
	}
	if got := len(n.book.timers); got != before {
		t.Errorf("%d timers became %d", before, got)
	}
	w, n, _ = inState(t, Prefill, Bootstrapping)
	for range 100 {
		n.book.PeerUp(w.now, room1, w.d.inc, 0)
	}
	if got := len(n.book.timers); got != 1 {
		t.Errorf("one timer became %d", got)
	}
}

func TestAChunkThatIsSettledAfterItsRoomIsBuriedIsNoFault(t *testing.T) {
	w, n, gen := inState(t, Prefill, Failed)
	n.perform(n.book.Freed(w.now, room1))
	n.book.Settled(w.now, room1, gen, chunkBytes, nil)
	if n.book.Impossible() != 0 {
		t.Error("it was counted as one")
	}
}

func TestAnEndingByTimeIsToldToThePeer(t *testing.T) {
	for _, side := range bothSides {
		for _, s := range []State{WaitingForInput, Transferring} {
			w, n, gen := inState(t, side, s)
			r := n.book.Get(room1)
			r.Deadline = w.now.After(time.Second)
			r.timerAt = 0
			n.book.arm(r)
			fx := n.book.Sweep(r.Deadline)
			if m := sent(fx); len(m) != 1 || m[0].Type != Fail || m[0].Cause.Code != Deadline || m[0].Gen != gen {
				t.Errorf("%s in %s told %v", side, s, m)
			}
		}
	}
}

func TestAnEndedRoomWaitsForNothing(t *testing.T) {
	b := New(Decode, testChunk, Limits{})
	b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: 100})
	b.Fail(0, 1, Because(EngineFailed, "test"))
	b.Sweep(1000)
	b.Freed(1000, 1)
	if at, ok := b.Next(); ok {
		t.Errorf("the book wakes at %v for nothing", at)
	}
}

func TestADeadlineThatIsOverBeforeItsLegCameEndsItAsThat(t *testing.T) {
	w := newWorld()
	w.advance(Mono(time.Minute))
	w.p.leg(room1, 10, 0, Mono(time.Second))
	w.p.admit(room1)
	w.advance(w.now)
	wantCause(t, w.p, Deadline)
}

func TestAStallAtTheVeryDeadlineIsTheDeadlines(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 10, 0, Mono(DefaultStall))
	w.p.admit(room1)
	w.d.leg(room1, 10, 0, Mono(time.Hour))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	w.p.compute(room1)
	w.advance(Mono(DefaultStall))
	wantCause(t, w.p, Deadline)
}

func TestAChunkOfAnEvictedRunIsNotKept(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 10, 0, w.now.After(time.Minute))
	w.p.admit(room1)
	w.p.compute(room1)
	w.advance(w.now.After(DefaultReady))
	want(t, w.p, Bootstrapping)
	w.p.book.Exported(w.now, room1, chunkBytes, 7, true)
	if r := w.p.book.Get(room1); len(r.exported) != 0 || r.complete || r.sum != 0 {
		t.Errorf("the room keeps %d chunks, complete %v", len(r.exported), r.complete)
	}
	w, n, _ := inState(t, Prefill, WaitingForInput)
	n.book.Exported(w.now, room1, chunkBytes, 7, true)
	if r := n.book.Get(room1); len(r.exported) != 0 || r.complete {
		t.Errorf("a room without resources keeps %d chunks", len(r.exported))
	}
}

func TestAForeignChunkIsNotTakenInTheMiddleOfATransfer(t *testing.T) {
	w, n, gen := inState(t, Decode, Transferring)
	for _, c := range []struct {
		from id.Incarnation
		gen  id.Generation
	}{{4242, gen}, {w.p.inc, gen + 1}} {
		if take, _ := n.book.Chunk(w.now, c.from, c.gen, room1, 1, 4, 8, chunkBytes, false); take {
			t.Errorf("a chunk of worker %v, generation %v was taken", c.from, c.gen)
		}
	}
}

func TestAChunkThatWasNotTakenCannotBeImported(t *testing.T) {
	w, n, gen := inState(t, Decode, WaitingForInput)
	n.book.Imported(w.now, room1, gen, chunkBytes, 1)
	if r := n.book.Get(room1); r.imported != 0 || r.held != 0 || r.sum != 0 {
		t.Errorf("%d chunks and %d bytes were imported before any came", r.imported, -r.held)
	}
	w, n, gen = inState(t, Decode, Success)
	n.book.Imported(w.now, room1, gen, chunkBytes, 1)
	m := sent(n.book.PeerUp(w.now, room1, w.p.inc, 5))
	if len(m) != 1 || m[0].Chunks != 3 {
		t.Errorf("COMMIT said again is %+v", m)
	}
}

func TestAnAbortForARoomThatFailedBeforeReadyIsAcknowledged(t *testing.T) {
	for _, s := range []State{Prealloc, Bootstrapping} {
		w, n, _ := inState(t, Decode, s)
		n.perform(n.book.Fail(w.now, room1, Because(EngineFailed, "test")))
		m := sent(n.book.Message(w.now, w.p.inc, Message{Type: Abort, Room: room1, Cause: Cause{Code: ClientGone}}))
		if len(m) != 1 || m[0].Type != AbortAck {
			t.Errorf("answered with %v", m)
		}
	}
}

func TestTheChunksOfAHandOverCoverWhatHasToTravel(t *testing.T) {
	for _, c := range []struct {
		tokens, have int32
		want         string
	}{
		{1, 0, "[0 0 true]"},
		{2, 0, "[0 1 true]"},
		{5, 0, "[0 4 true]"},
		{6, 0, "[0 4 false] [4 5 true]"},
		{14, 8, "[8 12 false] [12 13 true]"},
		{13, 8, "[8 12 true]"},
	} {
		r := Record{Leg: Leg{Tokens: c.tokens, Have: c.have}}
		var got []string
		for i := range r.Chunks(4) {
			p0, p1, last := r.span(i, 4)
			got = append(got, fmt.Sprint([]any{p0, p1, last}))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%d tokens of which decode has %d: %s, want %s", c.tokens, c.have, s, c.want)
		}
	}
}

func TestOnlyRoomsWithoutALegCountAsStrays(t *testing.T) {
	b := New(Prefill, testChunk, Limits{PerPeer: 2})
	ready := func(r id.Room) {
		b.Message(0, 7, Message{Type: Ready, Room: r, Gen: 1, Tokens: 10, Window: 20})
	}
	ready(1) // a stray
	for r := id.Room(2); r <= 5; r++ {
		b.LegArrived(0, Leg{Room: r, RID: id.RID(r.String()), Tokens: 10, Deadline: 1e12})
		ready(r)
	}
	if b.Get(1) == nil || b.Get(1).State != Early {
		t.Error("rooms with a leg cost a stray its place")
	}
}

func TestAStrayThatEndedByItselfIsNoStrayTwice(t *testing.T) {
	b := New(Prefill, testChunk, Limits{PerPeer: 2})
	for r := id.Room(1); r <= 2; r++ {
		b.Message(0, 7, Message{Type: Ready, Room: r, Gen: 1, Tokens: 10, Window: 20})
		b.Message(0, 8, Message{Type: Ready, Room: r + 2, Gen: 1, Tokens: 10, Window: 20})
	}
	now := Mono(DefaultReady)
	b.Sweep(now)
	if got := b.Counts(Parked); got != 4 {
		t.Fatalf("%d rooms are parked, want 4: two of each peer", got)
	}
	b.Sweep(now.After(DefaultPark))
	for r := id.Room(11); r <= 13; r++ { // the first two of the list are long gone
		b.Message(b.now, 7, Message{Type: Abort, Room: r, Cause: Cause{Code: ClientGone}})
	}
	if got := b.Counts(Parked); got != 2 || b.Drops()["stray_quota"] != 1 {
		t.Errorf("%d rooms are parked, want the 2 latest; %v", got, b.Drops())
	}
}

func TestASessionThatComesUpAgainRepeatsWhatMayBeLost(t *testing.T) {
	for _, c := range []struct {
		side Side
		s    State
		want []Type
	}{
		{Decode, WaitingForInput, []Type{Ready}},
		{Decode, Transferring, nil},
		{Decode, Success, []Type{Commit}},
		{Decode, Failed, []Type{Fail}},
		{Prefill, Transferring, nil},
		{Prefill, Success, nil},
		{Prefill, Failed, []Type{Fail}},
	} {
		w, n, gen := inState(t, c.side, c.s)
		peer := []*node{w.d, w.p}[c.side].inc
		var got []Type
		for _, m := range sent(n.book.PeerUp(w.now, room1, peer, 31337)) {
			got = append(got, m.Type)
			if m.Gen != gen {
				t.Errorf("%s in %s repeats with generation %v, not %v", c.side, c.s, m.Gen, gen)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s in %s repeats %v, want %v", c.side, c.s, got, c.want)
		}
	}
}

func TestARoomThatFailedWithoutAPeerHasNobodyToTell(t *testing.T) {
	for side, s := range map[Side]State{Prefill: Computing, Decode: Bootstrapping} {
		w, n, _ := inState(t, side, s)
		fx := n.book.Fail(w.now, room1, Because(EngineFailed, "test"))
		peer := []*node{w.d, w.p}[side].inc
		fx = append(fx, n.book.PeerUp(w.now, room1, peer, 5)...)
		if m := sent(fx); len(m) != 0 {
			t.Errorf("%s told nobody %v", side, m)
		}
	}
}
