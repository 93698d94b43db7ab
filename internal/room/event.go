package room

import "fmt"

// event is what happened to a room, as the guards in input.go have classified it.
type event uint8

const (
	evLeg           event = iota // the router's leg arrived
	evLegMismatch                // the leg arrived and tokenizes otherwise than the READY that was here first
	evAdmit                      // the worker took the room's resources
	evReady                      // READY, the first, for the same tokens
	evReadyAgain                 // READY of the hand-over that we have already
	evReadyOther                 // READY of another decode or generation
	evReadyMismatch              // READY for other tokens than the leg's
	evExported                   // the engine exported one more chunk
	evSettled                    // a published chunk was acknowledged
	evPeerUp                     // a session to the peer is up (again)
	evChunk                      // the next chunk of the hand-over arrives
	evChunkBad                   // a chunk of the hand-over that is not the next one, or too large for the window
	evImported                   // a chunk was verified and imported, more follow
	evImportedLast               // the last chunk was verified and imported
	evCommit                     // COMMIT with our count and digest, and everything was published
	evCommitBad                  // COMMIT with another count or digest, or too early
	evPeerAbort                  // ABORT from the peer
	evPeerFail                   // FAIL from the peer
	evForeign                    // a message of another incarnation or generation
	evAbortAck                   // ABORT_ACK from the peer
	evAbort                      // the client, the router or an operator ends the room
	evFail                       // a fault on this worker ends the room
	evPeerDown                   // the peer was fenced, or its data connection broke
	evLapse                      // the state's own time is over (see Limits)
	evStall                      // published bytes were not fetched in time
	evExpire                     // the request's deadline
	evDrain                      // this worker leaves service
	evFreed                      // no memory of the room is in use any more
	numEvents
)

var eventNames = [numEvents]string{"leg", "leg-mismatch", "admit", "READY", "READY-again", "READY-other",
	"READY-mismatch", "exported", "settled", "peer-up", "chunk", "chunk-bad", "imported", "imported-last", "COMMIT",
	"COMMIT-bad", "ABORT", "FAIL", "foreign", "ABORT_ACK", "abort", "fail", "peer-down", "lapse", "stall", "expire",
	"drain", "freed"}

// String returns the event's name as the documents spell it.
func (e event) String() string {
	if e < numEvents {
		return eventNames[e]
	}
	return fmt.Sprintf("event(%d)", uint8(e))
}

// events of each side, in the order the documents list them.
var sideEvents = [2][]event{
	Prefill: {evLeg, evLegMismatch, evAdmit, evReady, evReadyAgain, evReadyOther, evReadyMismatch, evExported,
		evSettled, evPeerUp, evCommit, evCommitBad, evPeerAbort, evPeerFail, evForeign, evAbortAck, evAbort, evFail, evPeerDown,
		evLapse, evStall, evExpire, evDrain, evFreed},
	Decode: {evLeg, evAdmit, evPeerUp, evChunk, evChunkBad, evImported, evImportedLast, evPeerAbort, evPeerFail,
		evForeign, evAbortAck, evAbort, evFail, evPeerDown, evLapse, evExpire, evDrain, evFreed},
}
