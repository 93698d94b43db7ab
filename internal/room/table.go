package room

// action is one thing a transition does; do.go performs it on the record.
type action uint8

const (
	nothing       action = iota
	adoptLeg             // take the leg's fields, index the rid
	adoptReady           // take the peer, the generation and the window from READY
	adoptCause           // keep the event's cause: the first wins
	enqueue              // ask for resources, unpaired
	enqueuePaired        // ask for resources, READY is here
	evict                // give the resources back, stay in the queue
	seek                 // ask for a session with the prefill worker
	sendReady            // READY to the peer
	sendCommit           // COMMIT to the peer
	sendAck              // ABORT_ACK to whoever sent the event
	tell                 // the room's cause to its peer, as ABORT or FAIL; silent without a peer
	reply                // the room's ending to whoever sent the event
	replyTaken           // FAIL room_taken to whoever sent the event
	publish              // hand exported chunks to the data plane while the window has room
	take                 // count the chunk as taken
	stop                 // cancel all work and transfers of the room
	answer               // end the leg with the room's cause
	proceed              // decode: the hand-over is complete
	refuse               // answer the leg as a duplicate
	bury                 // all memory is free: become a tombstone
	dropLate             // count: it came after the end
	dropForeign          // count: it is of another incarnation or generation
	dropTwice            // count: it came before
	dropUnknown          // count: no such room
	never                // the guards exclude it; counted, and a test fails if it happens
	numActions
)

// stay as a rule's next state leaves the state unchanged.
const stay = numStates

// rule is one or more cells of the table: on this event, in any of these states.
type rule struct {
	on   event
	in   []State
	next State
	do   []action
}

func in(s ...State) []State     { return s }
func do(a ...action) []action   { return a }
func both(a, b []State) []State { return append(append([]State(nil), a...), b...) }

// Groups of states that rules share.
var (
	liveP    = in(Bootstrapping, Computing, WaitingForInput, Transferring)
	aloneP   = in(Bootstrapping, Computing) // no peer yet
	pairedP  = in(WaitingForInput, Transferring)
	liveD    = in(Prealloc, Bootstrapping, WaitingForInput, Transferring)
	aloneD   = in(Prealloc, Bootstrapping) // no peer yet
	pairedD  = in(WaitingForInput, Transferring)
	terminal = in(Success, Failed)
)

// prefillRules is the prefill side, whole.
var prefillRules = []rule{
	{evLeg, in(Absent), Bootstrapping, do(adoptLeg, enqueue)},
	{evLeg, in(Parked), Failed, do(adoptLeg, stop, answer)},
	{evLeg, in(Early), WaitingForInput, do(adoptLeg, enqueuePaired)},
	{evLeg, both(liveP, terminal), stay, do(refuse)},

	{evLegMismatch, in(Early), Failed, do(adoptLeg, adoptCause, tell, stop, answer)},
	{evLegMismatch, both(in(Absent, Parked), both(liveP, terminal)), stay, do(never)},

	{evAdmit, in(Bootstrapping), Computing, do(nothing)},
	{evAdmit, in(WaitingForInput), Transferring, do(nothing)},
	{evAdmit, terminal, stay, do(stop)},
	{evAdmit, in(Absent, Parked, Early, Computing, Transferring), stay, do(never)},

	{evReady, in(Absent), Early, do(adoptReady)},
	{evReady, in(Bootstrapping), WaitingForInput, do(adoptReady, enqueuePaired)},
	{evReady, in(Computing), Transferring, do(adoptReady, publish)},
	{evReady, in(Parked, Failed), stay, do(reply)},
	{evReady, in(Early, WaitingForInput, Transferring, Success), stay, do(never)},

	{evReadyAgain, in(Early, WaitingForInput, Transferring), stay, do(dropTwice)},
	{evReadyAgain, in(Success), stay, do(dropLate)},
	{evReadyAgain, in(Failed, Parked), stay, do(reply)},
	{evReadyAgain, in(Absent, Bootstrapping, Computing), stay, do(never)},

	{evReadyOther, in(Early, WaitingForInput, Transferring), stay, do(replyTaken)},
	{evReadyOther, both(in(Parked), terminal), stay, do(reply)},
	{evReadyOther, in(Absent, Bootstrapping, Computing), stay, do(never)},

	{evReadyMismatch, in(Bootstrapping, Computing), Failed, do(adoptReady, adoptCause, tell, stop, answer)},
	{evReadyMismatch, both(in(Absent, Parked, Early, WaitingForInput, Transferring), terminal), stay, do(never)},

	{evExported, in(Computing), stay, do(nothing)},
	{evExported, in(Transferring), stay, do(publish)},
	{evExported, both(in(Bootstrapping, WaitingForInput), terminal), stay, do(dropLate)},
	{evExported, in(Absent, Parked, Early), stay, do(dropUnknown)},

	{evSettled, in(Transferring), stay, do(publish)},
	{evSettled, terminal, stay, do(nothing)},
	{evSettled, in(Absent, Parked, Early, Bootstrapping, Computing, WaitingForInput), stay, do(dropUnknown)},

	{evPeerUp, in(Failed), stay, do(tell)},
	{evPeerUp, both(in(Absent, Parked, Early, Success), liveP), stay, do(nothing)},

	{evCommit, in(Transferring), Success, do(stop, answer)},
	{evCommit, in(Success), stay, do(dropTwice)},
	{evCommit, in(Failed), stay, do(reply)},
	{evCommit, in(Absent, Parked, Early, Bootstrapping, Computing, WaitingForInput), stay, do(never)},

	{evCommitBad, in(Early), Parked, do(adoptCause, tell)},
	{evCommitBad, pairedP, Failed, do(adoptCause, tell, stop, answer)},
	{evCommitBad, both(in(Absent, Parked, Bootstrapping, Computing), terminal), stay, do(never)},

	{evPeerAbort, in(Absent, Early), Parked, do(adoptCause, sendAck)},
	{evPeerAbort, liveP, Failed, do(adoptCause, sendAck, stop, answer)},
	{evPeerAbort, both(in(Parked), terminal), stay, do(sendAck, dropLate)},

	{evPeerFail, in(Absent, Early), Parked, do(adoptCause)},
	{evPeerFail, liveP, Failed, do(adoptCause, stop, answer)},
	{evPeerFail, both(in(Parked), terminal), stay, do(dropLate)},

	{evForeign, both(in(Absent, Parked, Early), both(liveP, terminal)), stay, do(dropForeign)},
	{evAbortAck, both(in(Absent, Parked, Early), both(liveP, terminal)), stay, do(nothing)},

	{evAbort, aloneP, Failed, do(adoptCause, stop, answer)},
	{evAbort, pairedP, Failed, do(adoptCause, tell, stop, answer)},
	{evAbort, terminal, stay, do(dropLate)},
	{evAbort, in(Absent, Parked, Early), stay, do(never)},

	{evFail, aloneP, Failed, do(adoptCause, stop, answer)},
	{evFail, pairedP, Failed, do(adoptCause, tell, stop, answer)},
	{evFail, both(in(Parked), terminal), stay, do(dropLate)},
	{evFail, in(Absent, Early), stay, do(dropUnknown)},

	{evPeerDown, in(Early), Absent, do(nothing)},
	{evPeerDown, pairedP, Failed, do(adoptCause, tell, stop, answer)},
	{evPeerDown, both(in(Parked), terminal), stay, do(nothing)},
	{evPeerDown, in(Absent, Bootstrapping, Computing), stay, do(never)},

	{evLapse, in(Parked), Absent, do(nothing)},
	{evLapse, in(Early), Parked, do(adoptCause, tell)},
	{evLapse, in(Computing), Bootstrapping, do(evict)},
	{evLapse, both(in(Absent, Bootstrapping, WaitingForInput, Transferring), terminal), stay, do(never)},

	{evStall, in(Transferring), Failed, do(adoptCause, tell, stop, answer)},
	{evStall, both(in(Absent, Parked, Early, Bootstrapping, Computing, WaitingForInput), terminal), stay, do(never)},

	{evExpire, aloneP, Failed, do(adoptCause, stop, answer)},
	{evExpire, pairedP, Failed, do(adoptCause, tell, stop, answer)},
	{evExpire, both(in(Absent, Parked, Early), terminal), stay, do(never)},

	{evDrain, aloneP, Failed, do(adoptCause, stop, answer)},
	{evDrain, both(in(Absent, Parked, Early, WaitingForInput, Transferring), terminal), stay, do(nothing)},

	{evFreed, terminal, stay, do(bury)},
	{evFreed, both(in(Absent, Parked, Early), liveP), stay, do(dropUnknown)},
}

// decodeRules is the decode side, whole.
var decodeRules = []rule{
	{evLeg, in(Absent), Prealloc, do(adoptLeg, enqueue)},
	{evLeg, both(liveD, terminal), stay, do(refuse)},

	{evAdmit, in(Prealloc), Bootstrapping, do(seek)},
	{evAdmit, terminal, stay, do(stop)},
	{evAdmit, in(Absent, Bootstrapping, WaitingForInput, Transferring), stay, do(never)},

	{evPeerUp, in(Bootstrapping), WaitingForInput, do(adoptReady, sendReady)},
	{evPeerUp, in(WaitingForInput), stay, do(sendReady)},
	{evPeerUp, in(Success), stay, do(sendCommit)},
	{evPeerUp, in(Failed), stay, do(tell)},
	{evPeerUp, in(Prealloc, Transferring), stay, do(nothing)},
	{evPeerUp, in(Absent), stay, do(dropUnknown)},

	{evChunk, in(WaitingForInput), Transferring, do(take)},
	{evChunk, in(Transferring), stay, do(take)},
	{evChunk, in(Success), stay, do(dropLate)},
	{evChunk, in(Failed), stay, do(tell, dropLate)},
	{evChunk, in(Absent, Prealloc, Bootstrapping), stay, do(never)},

	{evChunkBad, pairedD, Failed, do(adoptCause, tell, stop, answer)},
	{evChunkBad, both(in(Absent, Prealloc, Bootstrapping), terminal), stay, do(never)},

	{evImported, in(Transferring), stay, do(nothing)},
	{evImported, terminal, stay, do(dropLate)},
	{evImported, in(Absent, Prealloc, Bootstrapping, WaitingForInput), stay, do(dropUnknown)},

	{evImportedLast, in(Transferring), Success, do(sendCommit, proceed)},
	{evImportedLast, both(in(Absent, Prealloc, Bootstrapping, WaitingForInput), terminal), stay, do(never)},

	{evPeerAbort, pairedD, Failed, do(adoptCause, sendAck, stop, answer)},
	{evPeerAbort, both(in(Absent), terminal), stay, do(sendAck, dropLate)},
	{evPeerAbort, aloneD, stay, do(never)},

	{evPeerFail, pairedD, Failed, do(adoptCause, stop, answer)},
	{evPeerFail, both(in(Absent), terminal), stay, do(dropLate)},
	{evPeerFail, aloneD, stay, do(never)},

	{evForeign, both(in(Absent), both(liveD, terminal)), stay, do(dropForeign)},
	{evAbortAck, both(in(Absent), both(liveD, terminal)), stay, do(nothing)},

	{evAbort, aloneD, Failed, do(adoptCause, stop, answer)},
	{evAbort, pairedD, Failed, do(adoptCause, tell, stop, answer)},
	{evAbort, in(Success), stay, do(stop)},
	{evAbort, in(Failed), stay, do(dropLate)},
	{evAbort, in(Absent), stay, do(never)},

	{evFail, aloneD, Failed, do(adoptCause, stop, answer)},
	{evFail, pairedD, Failed, do(adoptCause, tell, stop, answer)},
	{evFail, terminal, stay, do(dropLate)},
	{evFail, in(Absent), stay, do(dropUnknown)},

	{evPeerDown, pairedD, Failed, do(adoptCause, tell, stop, answer)},
	{evPeerDown, terminal, stay, do(nothing)},
	{evPeerDown, in(Absent, Prealloc, Bootstrapping), stay, do(never)},

	{evLapse, in(Bootstrapping), Failed, do(adoptCause, stop, answer)},
	{evLapse, both(in(Absent, Prealloc, WaitingForInput, Transferring), terminal), stay, do(never)},

	{evExpire, aloneD, Failed, do(adoptCause, stop, answer)},
	{evExpire, pairedD, Failed, do(adoptCause, tell, stop, answer)},
	{evExpire, in(Success), stay, do(stop)},
	{evExpire, in(Absent, Failed), stay, do(never)},

	{evDrain, aloneD, Failed, do(adoptCause, stop, answer)},
	{evDrain, both(in(Absent), both(pairedD, terminal)), stay, do(nothing)},

	{evFreed, terminal, stay, do(bury)},
	{evFreed, both(in(Absent), liveD), stay, do(dropUnknown)},
}

// cell is one entry of the expanded table.
type cell struct {
	next State
	do   []action
}

// tables are the rules of each side, expanded; expand fails on a cell that is
// empty or filled twice.
var tables = [2]map[State]map[event]cell{
	Prefill: expand(Prefill, prefillRules),
	Decode:  expand(Decode, decodeRules),
}

func expand(side Side, rules []rule) map[State]map[event]cell {
	t := make(map[State]map[event]cell)
	for _, s := range sideStates[side] {
		t[s] = make(map[event]cell)
	}
	for _, r := range rules {
		for _, s := range r.in {
			if _, twice := t[s][r.on]; twice {
				panic("room: two rules for " + side.String() + " " + s.String() + " × " + r.on.String())
			}
			t[s][r.on] = cell{r.next, r.do}
		}
	}
	for _, s := range sideStates[side] {
		for _, e := range sideEvents[side] {
			if c, ok := t[s][e]; !ok || len(c.do) == 0 {
				panic("room: no rule for " + side.String() + " " + s.String() + " × " + e.String())
			}
		}
	}
	return t
}
