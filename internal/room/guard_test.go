package room

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// sent returns the messages among some effects.
func sent(fx []Effect) (all []Message) {
	for _, e := range fx {
		if s, ok := e.(Send); ok {
			all = append(all, s.Msg)
		}
	}
	return all
}

// first returns the first effect of a kind.
func first[E Effect](fx []Effect) (e E, ok bool) {
	for _, x := range fx {
		if e, ok = x.(E); ok {
			return e, true
		}
	}
	return e, false
}

func TestLimitsThatAreSetStay(t *testing.T) {
	set := Limits{Ready: 1, Bootstrap: 2, Stall: 3, Park: 4, Tombstones: 5, PerPeer: 6}
	if got := New(Prefill, testChunk, set).limits; got != set {
		t.Errorf("the limits are %+v, set were %+v", got, set)
	}
	want := Limits{DefaultReady, DefaultBootstrap, DefaultStall, DefaultPark, DefaultTombstones, DefaultPerPeer}
	if got := New(Prefill, testChunk, Limits{}).limits; got != want {
		t.Errorf("the limits are %+v by default, want %+v", got, want)
	}
}

func TestAReadyThatNoDecodeOfOursSendsIsForeign(t *testing.T) {
	good := Message{Type: Ready, Room: room1, Gen: 7, Tokens: 10, Have: 8, Window: 0}
	bad := map[string]func(*Message){
		"no generation":          func(m *Message) { m.Gen = 0 },
		"less than nothing":      func(m *Message) { m.Have = -4 },
		"not whole chunks":       func(m *Message) { m.Have = 3 },
		"all that would travel":  func(m *Message) { m.Tokens = 9 },
		"more than travels":      func(m *Message) { m.Tokens = 5 },
		"a window below nothing": func(m *Message) { m.Window = -1 },
	}
	for what, change := range bad {
		b, m := New(Prefill, testChunk, Limits{}), good
		change(&m)
		if got := reasons(t, b, func() []Effect { return b.Message(0, 1001, m) }); fmt.Sprint(got) != "[foreign]" || b.Get(room1) != nil {
			t.Errorf("READY with %s: ignored as %v, and the room is %v", what, got, b.Get(room1))
		}
	}
	b := New(Prefill, testChunk, Limits{})
	b.Message(0, 1001, good)
	if r := b.Get(room1); r == nil || r.State != Early {
		t.Errorf("a READY at its limits was refused: %v", r)
	}
	d := New(Decode, testChunk, Limits{})
	if got := reasons(t, d, func() []Effect { return d.Message(0, 1, good) }); fmt.Sprint(got) != "[foreign]" {
		t.Errorf("a READY that came to decode was ignored as %v", got)
	}
}

func TestReadyIsTheSameAgainOnlyFromTheSameDecodeAndHandOver(t *testing.T) {
	for _, c := range []struct {
		what string
		from id.Incarnation
		gen  id.Generation
		want Type
	}{
		{"the same", 0, 0, 0},
		{"another decode's with this generation", 4242, 0, Fail},
		{"another generation of this decode", 0, 4242, Fail},
	} {
		w, n, gen := inState(t, Prefill, Transferring)
		m := Message{Type: Ready, Room: room1, Gen: cmp.Or(c.gen, gen), Tokens: 10, Window: 20}
		answers := sent(n.book.Message(w.now, cmp.Or(c.from, w.d.inc), m))
		switch {
		case c.want == 0 && len(answers) != 0:
			t.Errorf("READY, %s, was answered with %v", c.what, answers)
		case c.want != 0 && (len(answers) != 1 || answers[0].Type != c.want || answers[0].Cause.Code != RoomTaken || answers[0].Gen != m.Gen):
			t.Errorf("READY, %s, was answered with %v; want FAIL room_taken of its own generation", c.what, answers)
		}
	}
}

func TestAReadyForOtherTokensIsAMismatchInEveryState(t *testing.T) {
	for _, s := range []State{Bootstrapping, Computing} {
		for what, m := range map[string]Message{
			"another number": {Tokens: 11},
			"other ids":      {Tokens: 10, Digest: Digest{1}},
		} {
			w, n, _ := inState(t, Prefill, s)
			m.Type, m.Room, m.Gen = Ready, room1, 7
			n.perform(n.book.Message(w.now, w.d.inc, m))
			wantCause(t, n, TokenizationMismatch)
			if n.book.Get(room1).Peer != w.d.inc {
				t.Errorf("in %s, READY with %s: the room is not bound to its decode", s, what)
			}
		}
	}
	for what, leg := range map[string]Leg{
		"another number": {Tokens: 11},
		"other ids":      {Tokens: 10, Digest: Digest{1}},
	} {
		w, n, _ := inState(t, Prefill, Early)
		leg.Room, leg.RID, leg.Deadline = room1, "1", soon(w)
		n.perform(n.book.LegArrived(w.now, leg))
		wantCause(t, n, TokenizationMismatch)
		if len(w.toD) != 1 || w.toD[0].msg.Type != Fail {
			t.Errorf("a leg with %s: decode was told %v", what, w.toD)
		}
	}
}

// committing brings prefill to where COMMIT is due, and returns the right one.
func committing(t *testing.T) (*world, Message) {
	w := newWorld()
	paired(w, 10)
	for range 3 {
		w.p.compute(room1)
		w.deliverChunk()
		w.deliverAck()
	}
	want(t, w.p, Transferring)
	return w, w.toP[0].msg
}

func TestACommitMustAgreeInEverything(t *testing.T) {
	for what, change := range map[string]func(*Message){
		"another count":  func(m *Message) { m.Chunks-- },
		"another digest": func(m *Message) { m.Sum ^= 1 },
	} {
		w, m := committing(t)
		change(&m)
		w.p.perform(w.p.book.Message(w.now, w.d.inc, m))
		wantCause(t, w.p, CommitMismatch)
		if len(w.toD) == 0 {
			t.Errorf("COMMIT with %s: decode was not told", what)
		}
	}
	w, m := committing(t)
	w.p.perform(w.p.book.Message(w.now, w.d.inc, m))
	want(t, w.p, Success)
	if got := reasons(t, w.p.book, func() []Effect { return w.p.book.Message(w.now, w.d.inc, m) }); fmt.Sprint(got) != "[duplicate]" {
		t.Errorf("the same COMMIT again was ignored as %v", got)
	}
}

func TestACommitForEveryChunkThatCameBeforeTheLastOneIsAMismatch(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.compute(room1)
	w.p.compute(room1)
	r := w.p.book.Get(room1)
	w.p.perform(w.p.book.Message(w.now, w.d.inc, Message{Type: Commit, Room: room1, Gen: r.Gen, Chunks: r.published, Sum: r.sum}))
	wantCause(t, w.p, CommitMismatch)
}

func TestACommitBeforeTheTransferFailsTheRoomAndParksAnEarlyOne(t *testing.T) {
	for s, next := range map[State]State{Early: Parked, WaitingForInput: Failed} {
		w, n, gen := inState(t, Prefill, s)
		n.perform(n.book.Message(w.now, w.d.inc, Message{Type: Commit, Room: room1, Gen: gen, Chunks: 0}))
		want(t, n, next)
		if s == WaitingForInput {
			wantCause(t, n, CommitMismatch)
			if !n.book.Get(room1).stopped {
				t.Error("its work was not stopped")
			}
		}
		if len(w.toD) != 1 || w.toD[0].msg.Type != Fail || w.toD[0].msg.Cause.Code != CommitMismatch {
			t.Errorf("COMMIT in %s: decode was told %v", s, w.toD)
		}
	}
}

func TestALateCommitForARoomThatFailedIsAnswered(t *testing.T) {
	w, n, gen := inState(t, Prefill, Failed)
	got := sent(n.book.Message(w.now, w.d.inc, Message{Type: Commit, Room: room1, Gen: gen, Chunks: 3}))
	if len(got) != 1 || got[0].Type != Fail || got[0].Cause.Code != EngineFailed {
		t.Errorf("answered with %v", got)
	}
}

func TestAReadyForARoomThatEndedIsAnsweredFromItsTombstone(t *testing.T) {
	for s, code := range map[State]Code{Parked: ClientGone, Failed: EngineFailed, Success: RoomTaken} {
		w, n, gen := inState(t, Prefill, s)
		got := sent(n.book.Message(w.now, 4242, Message{Type: Ready, Room: room1, Gen: gen + 1, Tokens: 10, Window: 20}))
		if len(got) != 1 || got[0].Cause.Code != code || got[0].Gen != gen+1 {
			t.Errorf("in %s another decode's READY was answered with %v, want %s", s, got, code)
		}
		if s == Failed {
			got = sent(n.book.Message(w.now, w.d.inc, Message{Type: Ready, Room: room1, Gen: gen, Tokens: 10, Window: 20}))
			if len(got) != 1 || got[0].Cause.Code != code {
				t.Errorf("in %s READY again was answered with %v", s, got)
			}
		}
	}
	// parked after its READY: the same READY again
	w, n, gen := inState(t, Prefill, Early)
	n.perform(n.book.Message(w.now, w.d.inc, Message{Type: Fail, Room: room1, Gen: gen, Cause: Cause{Code: EngineFailed}}))
	want(t, n, Parked)
	if got := sent(n.book.Message(w.now, w.d.inc, Message{Type: Ready, Room: room1, Gen: gen, Tokens: 10, Window: 20})); len(got) != 1 || got[0].Cause.Code != EngineFailed {
		t.Errorf("READY again for a parked room was answered with %v", got)
	}
	if got := sent(n.book.Message(w.now, 4242, Message{Type: Ready, Room: room1, Gen: 9, Tokens: 10, Window: 20})); len(got) != 1 || got[0].Cause.Code != EngineFailed {
		t.Errorf("another READY for a parked room was answered with %v", got)
	}
}

func TestAnAbortIsAcknowledgedInEveryState(t *testing.T) {
	for _, side := range bothSides {
		for _, s := range sideStates[side] {
			if side == Decode && is(s, Prealloc, Bootstrapping) {
				continue // no hand-over yet: of nobody we know
			}
			w, n, gen := inState(t, side, s)
			peer := []*node{w.d, w.p}[side].inc
			got := sent(n.book.Message(w.now, peer, Message{Type: Abort, Room: room1, Gen: gen, Cause: Cause{Code: ClientGone}}))
			if !slices.ContainsFunc(got, func(m Message) bool { return m.Type == AbortAck && m.Gen == gen }) {
				t.Errorf("%s in %s answered an ABORT with %v", side, s, got)
			}
		}
	}
}

func TestAFailIsNotAcknowledged(t *testing.T) {
	w, n, gen := inState(t, Decode, Transferring)
	if got := sent(n.book.Message(w.now, w.p.inc, Message{Type: Fail, Room: room1, Gen: gen, Cause: Cause{Code: EngineFailed}})); len(got) != 0 {
		t.Errorf("answered with %v", got)
	}
}

func TestEveryMisplacedChunkFailsTheRoom(t *testing.T) {
	type chunk struct {
		seq    uint32
		p0, p1 int32
		bytes  int
		last   bool
	}
	good := chunk{1, 4, 8, chunkBytes, false}
	for what, change := range map[string]func(*chunk){
		"the one after":      func(c *chunk) { c.seq++ },
		"the one before":     func(c *chunk) { c.seq-- },
		"another begin":      func(c *chunk) { c.p0 = 5 },
		"another end":        func(c *chunk) { c.p1 = 7 },
		"the last too early": func(c *chunk) { c.last = true },
		"beyond the window":  func(c *chunk) { c.bytes = chunkBytes + 1 },
	} {
		w, n, gen := inState(t, Decode, WaitingForInput)
		n.perform(second(n.book.Chunk(w.now, w.p.inc, gen, room1, 0, 0, 4, chunkBytes, false))) // fills half the window
		c := good
		change(&c)
		take, fx := n.book.Chunk(w.now, w.p.inc, gen, room1, c.seq, c.p0, c.p1, c.bytes, c.last)
		n.perform(fx)
		if take {
			t.Errorf("a chunk that is %s was taken", what)
		}
		wantCause(t, n, Protocol)
		if len(w.toP) != 1 || w.toP[0].msg.Type != Fail {
			t.Errorf("a chunk that is %s: prefill was told %v", what, w.toP)
		}
	}
	w, n, gen := inState(t, Decode, WaitingForInput)
	n.perform(second(n.book.Chunk(w.now, w.p.inc, gen, room1, 0, 0, 4, chunkBytes, false)))
	if take, _ := n.book.Chunk(w.now, w.p.inc, gen, room1, good.seq, good.p0, good.p1, good.bytes, good.last); !take {
		t.Error("a chunk that just fits the window was not taken")
	}
}

func second(_ bool, fx []Effect) []Effect { return fx }

func TestAChunkLargerThanTheWindowGoesAlone(t *testing.T) {
	w, n, gen := inState(t, Decode, WaitingForInput)
	if take, _ := n.book.Chunk(w.now, w.p.inc, gen, room1, 0, 0, 4, 5*chunkBytes, false); !take {
		t.Error("decode did not take it")
	}
	w, n, gen = inState(t, Prefill, Transferring)
	n.perform(n.book.Settled(w.now, room1, gen, chunkBytes, nil))
	n.book.Get(room1).Window = 1
	if fx := n.book.Exported(w.now, room1, chunkBytes, 1, false); !has[Publish](fx) {
		t.Errorf("prefill did not publish it: %v", fx)
	}
	if fx := n.book.Exported(w.now, room1, chunkBytes, 1, false); has[Publish](fx) {
		t.Error("prefill published a second one beside it")
	}
}

func TestAChunkOfAnotherHandOverSettlesNothing(t *testing.T) {
	w, n, gen := inState(t, Prefill, Transferring)
	n.book.Settled(w.now, room1, gen+1, chunkBytes, Because(TransferLost, "cut"))
	if r := n.book.Get(room1); r.State != Transferring || r.Outstanding() != chunkBytes || r.settled != 0 {
		t.Errorf("the room is in %s with %d bytes in flight", r.State, r.Outstanding())
	}
	n.perform(n.book.Settled(w.now, room1, gen, chunkBytes, Because(TransferLost, "cut")))
	wantCause(t, n, TransferLost)
	n.perform(n.book.Settled(w.now, room1, gen, chunkBytes, Because(TransferLost, "cut again")))
	wantCause(t, n, TransferLost)
}

func TestSumsThatCannotBeAreCountedAsFaults(t *testing.T) {
	for what, bytes := range map[string]int{"more bytes than are in flight": chunkBytes + 1, "a chunk twice": 0} {
		w, n, gen := inState(t, Prefill, Transferring)
		n.book.Settled(w.now, room1, gen, bytes, nil)
		if bytes == 0 {
			if n.book.Impossible() != 0 {
				t.Fatal("a chunk that is settled once counts as a fault")
			}
			n.book.Settled(w.now, room1, gen, bytes, nil)
		}
		if n.book.Impossible() != 1 || n.book.Drops()["impossible"] != 1 {
			t.Errorf("%s: %d faults, %v", what, n.book.Impossible(), n.book.Drops())
		}
	}
	b := New(Prefill, testChunk, Limits{})
	if got := reasons(t, b, func() []Effect { return b.Admitted(0, room1, 0) }); fmt.Sprint(got) != "[impossible]" || b.Impossible() != 1 {
		t.Errorf("a cell that the guards exclude was counted as %v, %d faults", got, b.Impossible())
	}
}

func TestOneRequestIsInOneRoomAtATime(t *testing.T) {
	b := New(Decode, testChunk, Limits{})
	leg := func(r id.Room) []Effect {
		return b.LegArrived(0, Leg{Room: r, RID: "r", Tokens: 5, Deadline: 1e10})
	}
	leg(1)
	refused, ok := first[Refuse](leg(2))
	if !ok || refused.Room != 2 || refused.RID != "r" || refused.Cause.Code != DuplicateRoom || b.Get(2) != nil || b.ByRID("r").Room != 1 {
		t.Errorf("the second room of a request in progress: %+v", refused)
	}
	b.Fail(0, 1, Because(EngineFailed, "test"))
	if leg(2); b.Get(2) == nil || b.ByRID("r").Room != 2 {
		t.Error("the second attempt, after the first had ended, was refused")
	}
	if b.ByRID("nobody") != nil {
		t.Error("a request that nobody sent has a room")
	}
}

func TestAParkedAbortEndsOnlyTheNextLegOfItsRequest(t *testing.T) {
	b := New(Decode, testChunk, Limits{})
	b.Abort(0, "r", 0, Because(AbortRequest, "first"))
	b.Abort(0, "r", 0, Because(AbortRequest, "second"))
	b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: 1e10})
	if r := b.Get(1); r.State != Failed || r.Cause.Detail != "first" {
		t.Errorf("the leg is in %s with %v", r.State, r.Cause)
	}
	b.LegArrived(0, Leg{Room: 2, RID: "r", Tokens: 5, Deadline: 1e10})
	if r := b.Get(2); r.State != Prealloc {
		t.Errorf("the leg after it is in %s with %v", r.State, r.Cause)
	}
}

func TestAnAbortNamesTheRequestAndTheRoom(t *testing.T) {
	w, n, _ := inState(t, Decode, Prealloc)
	n.perform(n.book.Abort(w.now, "another", room1, Because(AbortRequest, "test")))
	want(t, n, Prealloc)
}

func TestBothParkedAbortsOfALegEndItOnce(t *testing.T) {
	b := New(Decode, testChunk, Limits{})
	b.Abort(0, "r", 1, Because(AbortRequest, "the attempt"))
	b.Abort(0, "r", 0, Because(ClientGone, "the request"))
	b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: 1e10})
	if r := b.Get(1); r.State != Failed || r.Cause.Code != AbortRequest || b.Drops()["late"] != 0 {
		t.Errorf("the leg is in %s with %v; %v", r.State, r.Cause, b.Drops())
	}
}

func TestParkedAbortsAreBoundedAndForgottenOldestFirst(t *testing.T) {
	b := New(Decode, testChunk, Limits{Tombstones: 2})
	for _, rid := range []id.RID{"a", "b", "c", "c"} {
		b.Abort(0, rid, 0, Because(AbortRequest, "test"))
	}
	if got := b.Drops()["parked_overflow"]; got != 1 {
		t.Errorf("%d parked aborts were forgotten, want 1", got)
	}
	for room, rid := range map[id.Room]id.RID{1: "a", 2: "b", 3: "c"} {
		b.LegArrived(0, Leg{Room: room, RID: rid, Tokens: 5, Deadline: 1e10})
		if ended := b.Get(room).State == Failed; ended != (rid != "a") {
			t.Errorf("the leg of %s ended at once: %v", rid, ended)
		}
	}
	b = New(Decode, testChunk, Limits{Tombstones: 2})
	b.Abort(0, "a", 0, Because(AbortRequest, "test"))
	b.Abort(0, "b", 0, Because(AbortRequest, "test"))
	if got, there := b.Drops()["parked_overflow"]; there {
		t.Errorf("%d parked aborts were forgotten below the bound", got)
	}
}

func TestTheNextDeadlineIsTheEarliestOfAll(t *testing.T) {
	b := New(Decode, testChunk, Limits{Park: 10})
	if _, ok := b.Next(); ok {
		t.Error("an empty book waits for something")
	}
	b.Abort(0, "a", 0, Because(AbortRequest, "test"))
	if at, ok := b.Next(); !ok || at != 10 {
		t.Errorf("next is %v %v, want the parked abort's 10", at, ok)
	}
	b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: 20})
	if at, _ := b.Next(); at != 10 {
		t.Errorf("next is %v, want the parked abort's 10", at)
	}
	b.LegArrived(0, Leg{Room: 2, RID: "q", Tokens: 5, Deadline: 5})
	if at, _ := b.Next(); at != 5 {
		t.Errorf("next is %v, want the leg's 5", at)
	}
	b.Abort(7, "late", 0, Because(AbortRequest, "test"))
	b.Sweep(10)
	if at, _ := b.Next(); at != 17 {
		t.Errorf("next is %v, want the second parked abort's 17: only what has passed is forgotten", at)
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	b := New(Decode, testChunk, Limits{})
	b.Sweep(100)
	b.LegArrived(50, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: 1e10})
	if got := b.Get(1).Since; got != 100 {
		t.Errorf("the leg came at %d, after 100", got)
	}
}

func TestAShortRequestWaitsAQuarterOfItsTime(t *testing.T) {
	for _, side := range bothSides {
		b := New(side, testChunk, Limits{})
		b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: Mono(8 * time.Second)})
		b.Admitted(0, 1, 0)
		if at, ev, ok := b.due(b.Get(1)); !ok || ev != evLapse || at != Mono(2*time.Second) {
			t.Errorf("%s waits until %v for %s, want 2 s", side, time.Duration(at), ev)
		}
		b = New(side, testChunk, Limits{})
		b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: Mono(time.Minute)})
		b.Admitted(0, 1, 0)
		if at, _, _ := b.due(b.Get(1)); at != Mono(5*time.Second) {
			t.Errorf("%s waits until %v, want 5 s", side, time.Duration(at))
		}
	}
}

func TestAnEndingSaysWhatWasWaitedFor(t *testing.T) {
	w, n, _ := inState(t, Decode, Bootstrapping)
	w.advance(w.now.After(DefaultBootstrap))
	wantCause(t, n, BootstrapTimeout)

	w, n, _ = inState(t, Prefill, Transferring)
	w.advance(w.now.After(DefaultStall))
	wantCause(t, n, TransferStall)
	if d := n.book.Get(room1).Cause.Detail; !strings.HasPrefix(d, "10 published bytes") {
		t.Errorf("a stall with bytes in flight says %q", d)
	}
	w, _ = committing(t)
	w.toP = nil
	w.advance(w.now.After(DefaultStall))
	wantCause(t, w.p, TransferStall)
	if d := w.p.book.Get(room1).Cause.Detail; !strings.HasPrefix(d, "every chunk was acknowledged") {
		t.Errorf("a stall without bytes in flight says %q", d)
	}
}

func TestTheStallsClockStartsWhenBytesMoveAndAgainWhenTheyDo(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 10, 0, w.now.After(time.Hour))
	w.p.admit(room1)
	w.d.leg(room1, 10, 0, w.now.After(time.Hour))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	for range 2 { // computing takes long, and nothing is published meanwhile
		w.advance(w.now.After(8 * time.Second))
		w.p.compute(room1)
		w.advance(w.now.After(8 * time.Second))
		w.deliverChunk()
		w.deliverAck()
	}
	w.advance(w.now.After(8 * time.Second))
	want(t, w.p, Transferring)
	w.p.compute(room1)
	w.advance(w.now.After(9 * time.Second))
	w.deliverChunk()
	w.deliverAck() // COMMIT is due from here on
	w.advance(w.now.After(9 * time.Second))
	want(t, w.p, Transferring)
}

func TestRoomsOfOneEventEndInTheOrderOfTheirNumbers(t *testing.T) {
	order := func(fx []Effect) (rooms []id.Room) {
		for _, e := range fx {
			if a, ok := e.(Answer); ok {
				rooms = append(rooms, a.Room)
			}
		}
		return rooms
	}
	var legs, want []id.Room
	for r := id.Room(1); r <= 9; r++ {
		legs, want = append(legs, 1+(r*7)%9), append(want, r)
	}
	fill := func() *Book {
		b := New(Decode, testChunk, Limits{})
		for _, r := range legs {
			b.LegArrived(0, Leg{Room: r, RID: id.RID(r.String()), Tokens: 5, Deadline: 100})
		}
		return b
	}
	if got := order(fill().Drain(0)); !slices.Equal(got, want) {
		t.Errorf("drained in the order %v", got)
	}
	if got := order(fill().Sweep(100)); !slices.Equal(got, want) {
		t.Errorf("expired in the order %v", got)
	}
}

func TestBoundToAreTheHandOversOfThatPeerThatLiveOrEndedLately(t *testing.T) {
	w, n, _ := inState(t, Prefill, Transferring)
	n.leg(2, 10, 0, soon(w)) // no peer yet
	if got := n.book.BoundTo(w.d.inc); !reflect.DeepEqual(got, []id.Room{room1}) {
		t.Errorf("bound are %v, want room 1", got)
	}
	if got := n.book.BoundTo(4242); len(got) != 0 {
		t.Errorf("bound to a stranger are %v", got)
	}
	n.perform(n.book.Fail(w.now, room1, Because(EngineFailed, "test")))
	w.advance(w.now.After(DefaultReady - 1))
	if got := n.book.BoundTo(w.d.inc); len(got) != 1 {
		t.Errorf("bound shortly after the end are %v", got)
	}
	w.advance(w.now.After(1))
	if got := n.book.BoundTo(w.d.inc); len(got) != 0 {
		t.Errorf("bound long after the end are %v", got)
	}
	w, n, _ = inState(t, Prefill, Early)
	if got := n.book.BoundTo(w.d.inc); len(got) != 0 {
		t.Errorf("bound without a leg are %v", got)
	}
}

func TestStrayRoomsAreForgottenOldestFirstAndCounted(t *testing.T) {
	b := New(Prefill, testChunk, Limits{PerPeer: 2})
	for r := id.Room(1); r <= 5; r++ {
		b.Message(0, 7, Message{Type: Ready, Room: r, Gen: 1, Tokens: 10, Window: 20})
		if r == 1 {
			b.LegArrived(0, Leg{Room: 1, RID: "1", Tokens: 10, Deadline: 1e10}) // no stray any more
		}
	}
	if b.Get(1) == nil || b.Get(2) != nil || b.Get(3) != nil || b.Counts(Early) != 2 || b.Drops()["stray_quota"] != 2 {
		t.Errorf("rooms 1, 2, 3: %v %v %v; %d early; %v", b.Get(1), b.Get(2), b.Get(3), b.Counts(Early), b.Drops())
	}
	b.Message(0, 8, Message{Type: Ready, Room: 9, Gen: 1, Tokens: 10, Window: 20})
	if b.Get(9) == nil || b.Get(4) == nil {
		t.Error("one peer's strays cost another's")
	}
}

func TestATombstoneKeepsNoChunks(t *testing.T) {
	w, n, _ := inState(t, Prefill, Failed)
	n.perform(n.book.Freed(w.now, room1))
	if r := n.book.Get(room1); r.exported != nil || r.outstanding != 0 || r.held != 0 {
		t.Errorf("the tombstone keeps %+v", r)
	}
	n.perform(n.book.Freed(w.now, room1))
	if n.book.Remembered() != 1 || n.book.Counts(Failed) != 0 {
		t.Errorf("%d tombstones, %d rooms counted after two words of one end", n.book.Remembered(), n.book.Counts(Failed))
	}
}

func TestATombstoneThatIsForgottenIsCountedAndItsRequestIsFree(t *testing.T) {
	b := New(Decode, testChunk, Limits{Tombstones: 1})
	for r := id.Room(1); r <= 2; r++ {
		b.LegArrived(0, Leg{Room: r, RID: "same", Tokens: 5, Deadline: 100})
		b.Fail(0, r, Because(EngineFailed, "test"))
		b.Freed(0, r)
	}
	if b.Drops()["tombstone_overflow"] != 1 || b.ByRID("same") == nil || b.ByRID("same").Room != 2 {
		t.Errorf("%v; the request is at %v", b.Drops(), b.ByRID("same"))
	}
	b.LegArrived(0, Leg{Room: 3, RID: "other", Tokens: 5, Deadline: 100})
	b.Fail(0, 3, Because(EngineFailed, "test"))
	b.Freed(0, 3)
	if b.ByRID("same") != nil || len(b.rids) != 1 {
		t.Errorf("a forgotten room's request is remembered: %v", b.rids)
	}
}

func TestWorkIsStoppedForTheReasonThatEndedIt(t *testing.T) {
	stop := func(fx []Effect) Code {
		s, ok := first[StopWork](fx)
		if !ok || s.Cause == nil {
			return ""
		}
		return s.Cause.Code
	}
	w, m := committing(t)
	if got := stop(w.p.book.Message(w.now, w.d.inc, m)); got != Done {
		t.Errorf("after a success: %q", got)
	}
	w, n, _ := inState(t, Decode, Success)
	if got := stop(n.book.Abort(w.now, "1", 0, Because(ClientGone, "test"))); got != ClientGone {
		t.Errorf("a generation whose client left: %q", got)
	}
	if _, _, waits := n.book.due(n.book.Get(room1)); waits {
		t.Error("a generation that was stopped has a deadline still")
	}
	for s, code := range map[State]Code{Failed: EngineFailed, Success: Done} {
		for _, side := range bothSides {
			w, n, _ = inState(t, side, s)
			if got := stop(n.book.Admitted(w.now, room1, 0)); got != code {
				t.Errorf("%s, an admission that came after %s: %q", side, s, got)
			}
		}
	}
	w, n, _ = inState(t, Decode, Success)
	n.perform(n.book.Freed(w.now, room1))
	if _, _, waits := n.book.due(n.book.Get(room1)); waits {
		t.Error("a generation that has ended has a deadline still")
	}
}

func TestWhatDecodeHasIsSetOnceByItsAdmission(t *testing.T) {
	w, n, _ := inState(t, Decode, Failed)
	n.book.Admitted(w.now, room1, 8)
	if got := n.book.Get(room1).Have; got != 0 {
		t.Errorf("a late admission set have to %d", got)
	}
	w, n, _ = inState(t, Prefill, Bootstrapping)
	n.book.Admitted(w.now, room1, 8)
	if got := n.book.Get(room1).Have; got != 0 {
		t.Errorf("prefill's admission set have to %d", got)
	}
}

func TestChunksThatDecodeHasAreGivenBackOnce(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 14, 0, soon(w))
	w.p.admit(room1)
	w.p.compute(room1)
	gave := func(fx []Effect) (all []int) {
		for _, e := range fx {
			if d, ok := e.(Discard); ok {
				all = append(all, d.Index)
			}
		}
		w.p.perform(fx)
		return all
	}
	if got := gave(w.p.book.Message(w.now, w.d.inc, Message{Type: Ready, Room: room1, Gen: 7, Tokens: 14, Have: 8, Window: 20})); fmt.Sprint(got) != "[0]" {
		t.Errorf("at READY, chunks %v were given back", got)
	}
	w.p.held[room1].exported = 3
	if got := gave(w.p.book.Exported(w.now, room1, chunkBytes, 2, false)); fmt.Sprint(got) != "[1]" {
		t.Errorf("at the second export, chunks %v were given back", got)
	}
	if got := gave(w.p.book.Exported(w.now, room1, chunkBytes, 3, false)); len(got) != 0 {
		t.Errorf("at the third export, chunks %v were given back", got)
	}
}

func TestOnlyARoomThatComputesWithoutReadyYields(t *testing.T) {
	for _, side := range bothSides {
		for _, s := range sideStates[side] {
			w, n, _ := inState(t, side, s)
			fx := n.book.Yield(w.now, room1)
			n.perform(fx)
			if side == Prefill && s == Computing {
				want(t, n, Bootstrapping)
				if n.held[room1] != nil {
					t.Error("the room that yielded still holds memory")
				}
			} else if len(fx) != 0 {
				t.Errorf("%s in %s yielded: %v", side, s, fx)
			}
		}
	}
}
