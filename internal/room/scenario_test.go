package room

import (
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

const room1 = id.Room(1)

func soon(w *world) Mono { return w.now.After(20 * time.Second) }

// paired brings a room of n tokens to Transferring on prefill and READY sent on decode.
func paired(w *world, n int32) {
	w.p.leg(room1, n, 0, soon(w))
	w.p.admit(room1)
	w.d.leg(room1, n, 0, soon(w))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
}

func state(n *node) State {
	if r := n.book.Get(room1); r != nil {
		return r.State
	}
	return Absent
}

func want(t *testing.T, n *node, s State) {
	t.Helper()
	if got := state(n); got != s {
		t.Fatalf("%s is in %s, want %s", n.side, got, s)
	}
}

func wantCause(t *testing.T, n *node, code Code) {
	t.Helper()
	want(t, n, Failed)
	if c := n.book.Get(room1).Cause; c == nil || c.Code != code {
		t.Fatalf("%s failed with %v, want %s", n.side, c, code)
	}
	if a := n.answers[room1]; len(a) != 1 || a[0].Code != code {
		t.Fatalf("%s answered %v, want once with %s", n.side, a, code)
	}
}

func TestAHandOverOfThreeChunksSucceedsOnBothSides(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	want(t, w.p, Transferring)
	want(t, w.d, WaitingForInput)
	for range 3 {
		w.p.compute(room1)
		w.deliverChunk()
		w.deliverAck()
	}
	want(t, w.d, Success)
	if w.d.proceeds[room1] != 1 {
		t.Fatal("decode did not proceed")
	}
	w.deliverToP(0)
	want(t, w.p, Success)
	if a := w.p.answers[room1]; len(a) != 1 || a[0].Code != Done {
		t.Fatalf("prefill answered %v", a)
	}
}

func TestAPromptOfOneTokenTravelsAsOneEmptyChunk(t *testing.T) {
	w := newWorld()
	paired(w, 1)
	w.p.compute(room1)
	w.deliverChunk()
	w.deliverToP(0)
	want(t, w.p, Success)
	want(t, w.d, Success)
}

func TestOnlyWhatDecodeDoesNotHaveTravels(t *testing.T) {
	w := newWorld()
	w.d.have[room1] = 8
	w.p.leg(room1, 14, 0, soon(w))
	w.p.admit(room1)
	w.p.compute(room1)
	w.p.compute(room1)
	w.d.leg(room1, 14, 0, soon(w))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	if len(w.chunks) != 0 {
		t.Fatal("a chunk travels that decode has")
	}
	for range 2 {
		w.p.compute(room1)
		w.deliverChunk()
		w.deliverAck()
	}
	w.deliverToP(0)
	want(t, w.p, Success)
	want(t, w.d, Success)
	if r := w.d.book.Get(room1); r.imported != 2 {
		t.Fatalf("%d chunks were imported, want 2", r.imported)
	}
}

func TestWhatReadySaysCountsAlsoIfItComesBeforeTheLeg(t *testing.T) {
	w := newWorld()
	w.d.have[room1] = 8
	w.d.leg(room1, 14, 0, soon(w))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	want(t, w.p, Early)
	w.p.leg(room1, 14, 0, soon(w))
	w.p.admit(room1)
	if r := w.p.book.Get(room1); r.Have != 8 || r.Window != 2*chunkBytes {
		t.Fatalf("prefill remembers have %d and window %d, READY said 8 and %d", r.Have, r.Window, 2*chunkBytes)
	}
	for range 4 {
		w.p.compute(room1)
	}
	if len(w.chunks) != 2 {
		t.Fatalf("%d chunks travel, want the 2 that decode does not have, both within its window", len(w.chunks))
	}
	for range 2 {
		w.deliverChunk()
		w.deliverAck()
	}
	w.deliverToP(0)
	want(t, w.p, Success)
	want(t, w.d, Success)
}

func TestChunksExportedBeforeReadyArePublishedWhenItComes(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 9, 0, soon(w))
	w.p.admit(room1)
	w.p.compute(room1)
	w.p.compute(room1)
	if len(w.chunks) != 0 {
		t.Fatal("chunks were published before READY")
	}
	w.d.leg(room1, 9, 0, soon(w))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	if len(w.chunks) != 2 {
		t.Fatalf("%d chunks published at READY, want the 2 that were there", len(w.chunks))
	}
}

func TestPublishingStopsAtDecodesWindow(t *testing.T) {
	w := newWorld()
	paired(w, 14)
	for range 4 {
		w.p.compute(room1)
	}
	if len(w.chunks) != 2 {
		t.Fatalf("%d chunks in flight, want the 2 that fit the window", len(w.chunks))
	}
	w.deliverChunk()
	w.deliverAck()
	if len(w.chunks) != 2 {
		t.Fatalf("%d chunks in flight after an acknowledgement, want 2 again", len(w.chunks))
	}
}

func TestAnAbortOfDecodeEndsPrefillAtOnceAndIsNoFailure(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.d.perform(w.d.book.Abort(w.now, "1", 0, Because(ClientGone, "gone")))
	wantCause(t, w.d, ClientGone)
	w.deliverToP(0)
	wantCause(t, w.p, ClientGone)
	if w.p.book.Get(room1).Cause.Failure() {
		t.Fatal("an abort counts as a failure")
	}
	if len(w.toD) != 1 || w.toD[0].msg.Type != AbortAck {
		t.Fatalf("prefill sent %v, want one ABORT_ACK", w.toD)
	}
}

func TestAFailureOfPrefillEndsDecodeAtOnceWithItsCause(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.perform(w.p.book.Fail(w.now, room1, Because(EngineFailed, "no memory")))
	w.deliverToD(0)
	wantCause(t, w.d, EngineFailed)
}

func TestAnAbortThatComesBeforeItsLegIsAppliedToIt(t *testing.T) {
	w := newWorld()
	w.p.perform(w.p.book.Message(w.now, w.d.inc, Message{Type: Abort, Room: room1, Cause: Cause{Code: ClientGone}}))
	want(t, w.p, Parked)
	w.p.leg(room1, 10, 0, soon(w))
	wantCause(t, w.p, ClientGone)
}

func TestAnAbortByRequestIDThatComesBeforeItsLegIsAppliedToIt(t *testing.T) {
	for _, side := range []Side{Prefill, Decode} {
		w := newWorld()
		n := []*node{w.p, w.d}[side]
		n.perform(n.book.Abort(w.now, "1", 0, Because(AbortRequest, "router")))
		n.leg(room1, 10, 0, soon(w))
		wantCause(t, n, AbortRequest)
	}
}

func TestALateAbortOfOneAttemptDoesNotReachTheNext(t *testing.T) {
	w := newWorld()
	const first, second = id.Room(1), id.Room(2)
	w.d.perform(w.d.book.LegArrived(w.now, Leg{Room: first, RID: "r", Tokens: 10, Deadline: soon(w)}))
	w.d.perform(w.d.book.Fail(w.now, first, Because(TransferLost, "first attempt")))
	w.d.perform(w.d.book.LegArrived(w.now, Leg{Room: second, RID: "r", Tokens: 10, Deadline: soon(w)}))
	w.d.perform(w.d.book.Abort(w.now, "r", first, Because(AbortRequest, "late")))
	if r := w.d.book.Get(second); r.State != Prealloc {
		t.Fatalf("the second attempt is in %s with %v", r.State, r.Cause)
	}
	w.d.perform(w.d.book.Abort(w.now, "r", 0, Because(AbortRequest, "any attempt")))
	if r := w.d.book.Get(second); r.State != Failed {
		t.Fatalf("the second attempt is in %s after an abort of the request", r.State)
	}
}

func TestAParkedAbortIsForgottenAfterItsTime(t *testing.T) {
	w := newWorld()
	w.p.perform(w.p.book.Abort(w.now, "1", 0, Because(AbortRequest, "router")))
	w.advance(w.now.After(DefaultPark))
	w.p.leg(room1, 10, 0, soon(w))
	want(t, w.p, Bootstrapping)
}

func TestReadyOfAnotherDecodeIsRefusedAndTheRoomGoesOn(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.perform(w.p.book.Message(w.now, 4242, Message{Type: Ready, Room: room1, Gen: 9, Tokens: 10, Window: 20}))
	want(t, w.p, Transferring)
	fx := w.p.book.Message(w.now, 4242, Message{Type: Ready, Room: room1, Gen: 9, Tokens: 10, Window: 20})
	if s, ok := fx[0].(Send); !ok || s.To != 4242 || s.Msg.Type != Fail || s.Msg.Cause.Code != RoomTaken {
		t.Fatalf("the second decode got %+v, want FAIL room_taken", fx)
	}
}

func TestOtherTokensAreATokenizationMismatchWhicheverComesFirst(t *testing.T) {
	for _, readyFirst := range []bool{false, true} {
		w := newWorld()
		if !readyFirst {
			w.p.leg(room1, 10, 1, soon(w))
		}
		w.d.leg(room1, 10, 0, soon(w))
		w.d.admit(room1)
		w.sessionUp(room1)
		w.deliverToP(0)
		if readyFirst {
			w.p.leg(room1, 10, 1, soon(w))
		}
		wantCause(t, w.p, TokenizationMismatch)
		w.deliverToD(0)
		wantCause(t, w.d, TokenizationMismatch)
	}
}

func TestReadyForAnUnknownRoomFailsAfterItsTime(t *testing.T) {
	w := newWorld()
	w.d.leg(room1, 10, 0, soon(w))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	want(t, w.p, Early)
	w.advance(w.now.After(DefaultReady))
	w.deliverToD(0)
	wantCause(t, w.d, UnpairedTimeout)
}

func TestAnUnpairedRoomGivesItsMemoryBackAndIsAdmittedAgainWhenPaired(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 10, 0, w.now.After(time.Minute))
	w.p.admit(room1)
	w.p.compute(room1)
	w.advance(w.now.After(DefaultReady))
	want(t, w.p, Bootstrapping)
	if w.p.held[room1] != nil {
		t.Fatal("the room still holds memory")
	}
	w.d.leg(room1, 10, 0, w.now.After(time.Minute))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	want(t, w.p, WaitingForInput)
	w.p.admit(room1)
	for range 3 {
		w.p.compute(room1)
		w.deliverChunk()
		w.deliverAck()
	}
	w.deliverToP(0)
	want(t, w.p, Success)
}

func TestAdmissionThatLosesTheRaceWithTheEndGivesTheMemoryBack(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 10, 0, soon(w))
	w.p.perform(w.p.book.Abort(w.now, "1", 0, Because(ClientGone, "gone")))
	w.p.held[room1] = &job{}
	w.p.perform(w.p.book.Admitted(w.now, room1, 0))
	if !w.p.held[room1].stopped {
		t.Fatal("the resources taken for an ended room were not asked back")
	}
}

func TestPublishedBytesThatNobodyFetchesFailTheRoom(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.compute(room1)
	w.advance(w.now.After(DefaultStall - 1))
	want(t, w.p, Transferring)
	w.advance(w.now.After(1))
	wantCause(t, w.p, TransferStall)
}

func TestACommitThatIsLostHoldsPrefillsMemoryNoLongerThanAStall(t *testing.T) {
	w := newWorld()
	paired(w, 3)
	w.p.compute(room1)
	w.deliverChunk()
	w.deliverAck()
	w.toP = nil // COMMIT
	w.advance(w.now.After(DefaultStall - 1))
	want(t, w.p, Transferring)
	w.advance(w.now.After(1))
	wantCause(t, w.p, TransferStall)
	want(t, w.d, Success)
}

func TestAFencedPeerEndsOnlyItsOwnRooms(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.leg(2, 10, 0, soon(w))
	w.p.perform(w.p.book.PeerDown(w.now, w.d.inc, Because(PeerGone, "fenced")))
	wantCause(t, w.p, PeerGone)
	if r := w.p.book.Get(2); r.State != Bootstrapping {
		t.Fatalf("room 2 is in %s; its peer is alive", r.State)
	}
}

func TestACommitThatDisagreesFailsTheRoom(t *testing.T) {
	for name, m := range map[string]Message{
		"too early":    {Chunks: 1, Sum: 1},
		"other digest": {Chunks: 3, Sum: 42},
	} {
		w := newWorld()
		paired(w, 10)
		w.p.compute(room1)
		if name != "too early" {
			w.p.compute(room1)
			w.p.compute(room1)
		}
		m.Type, m.Room, m.Gen = Commit, room1, w.d.book.Get(room1).Gen
		w.p.perform(w.p.book.Message(w.now, w.d.inc, m))
		wantCause(t, w.p, CommitMismatch)
	}
}

func TestAChunkOutOfOrderFailsTheRoomAndIsNotTaken(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	gen := w.d.book.Get(room1).Gen
	take, fx := w.d.book.Chunk(w.now, w.p.inc, gen, room1, 1, 4, 8, chunkBytes, false)
	w.d.perform(fx)
	if take {
		t.Fatal("chunk 1 was taken where chunk 0 was due")
	}
	wantCause(t, w.d, Protocol)
}

func TestAChunkOfAnotherGenerationIsDiscarded(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	take, _ := w.d.book.Chunk(w.now, w.p.inc, 31337, room1, 0, 0, 4, chunkBytes, false)
	if take || state(w.d) != WaitingForInput {
		t.Fatalf("taken %v, state %s; want discarded and untouched", take, state(w.d))
	}
}

// Found by the explorer: a second copy of a READY that had been refused bound
// prefill to a hand-over that was over at decode. Decode dropped its chunks in
// silence, and prefill held its memory until T_stall.
func TestAChunkForAHandOverThatFailedIsAnsweredFromTheTombstone(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.d.perform(w.d.book.Fail(w.now, room1, Because(EngineFailed, "no memory")))
	w.toP = nil // lost
	w.p.compute(room1)
	w.deliverChunk()
	w.deliverToP(0)
	wantCause(t, w.p, EngineFailed)
}

func TestALateReadyIsAnsweredFromTheTombstone(t *testing.T) {
	w := newWorld()
	w.p.leg(room1, 10, 0, soon(w))
	w.p.perform(w.p.book.Abort(w.now, "1", 0, Because(ClientGone, "gone")))
	w.p.free(room1)
	w.d.leg(room1, 10, 0, soon(w))
	w.d.admit(room1)
	w.sessionUp(room1)
	w.deliverToP(0)
	w.deliverToD(0)
	wantCause(t, w.d, ClientGone)
}

func TestAnEndingThatWasLostWithASessionIsSaidAgainOnTheNext(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.perform(w.p.book.Fail(w.now, room1, Because(EngineFailed, "no memory")))
	w.toD = nil // lost
	w.p.perform(w.p.book.PeerUp(w.now, room1, w.d.inc, 0))
	w.deliverToD(0)
	wantCause(t, w.d, EngineFailed)
}

func TestTheFirstCauseWins(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.perform(w.p.book.Fail(w.now, room1, Because(EngineFailed, "first")))
	w.p.perform(w.p.book.Abort(w.now, "1", 0, Because(ClientGone, "second")))
	wantCause(t, w.p, EngineFailed)
}

func TestADuplicateLegIsRefusedAndTheRoomIsNotTouched(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.leg(room1, 10, 0, soon(w))
	w.d.leg(room1, 10, 0, soon(w))
	if w.p.refused[room1] != 1 || w.d.refused[room1] != 1 {
		t.Fatal("the duplicate legs were not refused")
	}
	want(t, w.p, Transferring)
	want(t, w.d, WaitingForInput)
}

func TestDrainEndsUnpairedRoomsAndLetsPairedOnesFinish(t *testing.T) {
	w := newWorld()
	paired(w, 10)
	w.p.leg(2, 10, 0, soon(w))
	w.p.perform(w.p.book.Drain(w.now))
	want(t, w.p, Transferring)
	if r := w.p.book.Get(2); r.State != Failed || !r.Cause.Retryable() {
		t.Fatalf("the unpaired room is in %s with %v; want Failed, retryable", r.State, r.Cause)
	}
	w.p.leg(3, 10, 0, soon(w))
	if w.p.refused[3] != 1 {
		t.Fatal("a leg was accepted while draining")
	}
}

func TestAnAbortAfterTheHandOverStopsTheGeneration(t *testing.T) {
	w := newWorld()
	paired(w, 3)
	w.p.compute(room1)
	w.deliverChunk()
	want(t, w.d, Success)
	w.d.perform(w.d.book.Abort(w.now, "1", 0, Because(ClientGone, "gone")))
	want(t, w.d, Success)
	if !w.d.held[room1].stopped {
		t.Fatal("the generation was not stopped")
	}
}

func TestTheDeadlineAlsoEndsTheGeneration(t *testing.T) {
	w := newWorld()
	paired(w, 3)
	w.p.compute(room1)
	w.deliverChunk()
	w.advance(soon(w))
	if !w.d.held[room1].stopped {
		t.Fatal("the generation went on after the request's deadline")
	}
}

func TestTombstonesAreBoundedAndForgottenOldestFirst(t *testing.T) {
	b := New(Prefill, testChunk, Limits{Tombstones: 3})
	for r := id.Room(1); r <= 5; r++ {
		b.LegArrived(0, Leg{Room: r, RID: id.RID(r.String()), Tokens: 5, Deadline: 100})
		b.Abort(0, id.RID(r.String()), r, Because(ClientGone, "gone"))
		b.Freed(0, r)
	}
	if b.Get(1) != nil || b.Get(2) != nil || b.Get(3) == nil || b.Remembered() != 3 {
		t.Fatalf("remembered %d rooms; want the last three", b.Remembered())
	}
}

func TestOnePeerCannotMakeUsRememberTooManyRooms(t *testing.T) {
	b := New(Prefill, testChunk, Limits{PerPeer: 3})
	for r := id.Room(1); r <= 5; r++ {
		b.Message(0, 7, Message{Type: Abort, Room: r, Cause: Cause{Code: ClientGone}})
	}
	if got := b.Counts(Parked); got != 3 {
		t.Fatalf("%d parked rooms, want the quota of 3", got)
	}
}
