package room

import (
	"cmp"
	"slices"
)

const protocolIntro = `# The room protocol

This file is generated from the tables in ` + "`internal/room`" + ` (` + "`go generate ./internal/room`" + `); a test fails when it is not
current. The package is pure: it can be read, replayed and explored without a network.

A *room* is one attempt to hand one prompt's KV from a prefill worker to a decode worker. The router mints its number, fresh on
every attempt, and sends a *leg* (an HTTP request) with it to both. The two workers then talk over one *session*:

` + "```" + `
router                prefill                                   decode
  │── leg ──────────────▶│ admit, compute into its arena share     │
  │── leg ──────────────────────────────────────────────────────▶ │ admit: KV cells, import buffer
  │                      │◀── READY{room, generation, n, digest} ──│
  │                      │─── CHUNK 0, 1, … (data plane) ─────────▶│ verify, import between two steps
  │                      │◀── acknowledgement of each chunk ───────│
  │                      │◀── COMMIT{chunks, digest} ──────────────│ evaluates the last token, generates
  │◀── leg's answer ─────│                                         │
  │◀── tokens ─────────────────────────────────────────────────────│
` + "```" + `

**Identity.** Before READY an event matches on the room; from READY on it matches on (room, generation, both incarnations).
Anything else is *foreign*: counted and dropped. **Terminal is final**: Success and Failed are never left, and a late message is
answered from the record, which has become its own tombstone. **An abort may come before its room**: it is parked and applied
when the leg arrives. **Memory outlives the request**: ` + "`stop`" + ` asks for it back, ` + "`freed`" + ` says that it is.
A hand-over has at least one chunk: where no KV has to travel (a prompt of one token) it is empty, and proves that the prefill
leg exists and has the same tokens before decode answers.

A cell with the action *never* is excluded by the guards that classify events; it is counted, and tests fail if it is reached.
`

var eventWords = [numEvents]string{
	evLeg:           "The router's request for the room arrives at this worker.",
	evLegMismatch:   "Guard: the leg arrives after READY, with another number of tokens or another digest of their ids.",
	evAdmit:         "The worker took the room's resources: KV cells and arena share (prefill), KV cells and import buffer (decode).",
	evReady:         "Guard: READY, the room has none yet, and the tokens agree with the leg if it is here.",
	evReadyAgain:    "Guard: READY with the incarnation and generation that the room has already, as after a reconnect.",
	evReadyOther:    "Guard: READY of another decode, or of another generation.",
	evReadyMismatch: "Guard: READY whose number of tokens or digest differs from the leg's.",
	evExported:      "The engine wrote the next chunk.",
	evSettled:       "The data plane is finished with a published chunk.",
	evPeerUp:        "A session with the room's other worker is up, or up again: what may have been lost with the old one is said again.",
	evChunk:         "Guard: a chunk of this hand-over arrives: the next one, with the right borders, inside the window.",
	evChunkBad:      "Guard: a chunk of this hand-over arrives out of order, with other borders, or beyond the window.",
	evImported:      "A chunk was verified and is in the engine; more follow.",
	evImportedLast:  "The last chunk was verified and is in the engine.",
	evCommit:        "Guard: COMMIT whose count and digest agree, after everything was published (or for an ended room).",
	evCommitBad:     "Guard: COMMIT with another count or digest, or too early.",
	evPeerAbort:     "ABORT from the peer. Not a failure: it trips nothing.",
	evPeerFail:      "FAIL from the peer.",
	evForeign:       "Guard: a message that speaks of another incarnation or generation than the room's.",
	evAbortAck:      "ABORT_ACK from the peer.",
	evAbort:         "The client left, or the router or an operator withdrew the request.",
	evFail:          "A fault on this worker: the engine refused, a chunk was corrupt.",
	evPeerDown:      "The peer was fenced, or its data connection broke.",
	evLapse:         "The state's own time is over, see Limits.",
	evStall:         "Published bytes were not fetched for T_stall, or all were and COMMIT did not come for as long.",
	evExpire:        "The request's deadline passed.",
	evDrain:         "This worker leaves service.",
	evFreed:         "No memory of the room is in use any more.",
}

var actionNames = [numActions]string{"nothing", "adopt leg", "adopt READY", "adopt cause", "enqueue", "enqueue paired",
	"evict", "seek", "send READY", "send COMMIT", "send ABORT_ACK", "tell", "reply", "reply taken", "publish", "take",
	"stop", "answer", "proceed", "refuse", "bury", "drop late", "drop foreign", "drop twice", "drop unknown", "never"}

var actionWords = [numActions]string{
	nothing:       "The event is expected here and changes nothing but what it counts.",
	adoptLeg:      "Keep the leg's fields and index the request id.",
	adoptReady:    "Bind the room to the peer's incarnation and the generation.",
	adoptCause:    "Keep the event's cause, unless there is one: the first wins.",
	enqueue:       "Into the admission queue; prefill may admit it early while few rooms are unpaired.",
	enqueuePaired: "Into the admission queue, before rooms without READY.",
	evict:         "Give its resources back; it is admitted again when paired.",
	seek:          "Look for a session with the prefill worker that the leg names.",
	sendReady:     "READY to the peer.",
	sendCommit:    "COMMIT to the peer.",
	sendAck:       "ABORT_ACK to the sender.",
	tell:          "The room's cause to its peer, as ABORT or FAIL.",
	reply:         "The room's ending to the sender, as ABORT or FAIL.",
	replyTaken:    "FAIL room_taken to the sender.",
	publish:       "Exported chunks to the data plane, in order, while decode's window has room. Those that decode has already give their memory back.",
	take:          "Count the chunk as taken.",
	stop:          "Cancel all work and transfers of the room and ask for its memory back.",
	answer:        "End the leg, with the room's cause.",
	proceed:       "The hand-over is complete: generation goes on under its own record.",
	refuse:        "Answer the leg as a duplicate; the room that exists is not touched.",
	bury:          "All memory is free: the record becomes a tombstone.",
	dropLate:      "Count: it came after the end.",
	dropForeign:   "Count: it is of another incarnation or generation.",
	dropTwice:     "Count: it came before.",
	dropUnknown:   "Count: no such room, or no such hand-over yet.",
	never:         "Excluded by the guards; counted as a fault of ours.",
}

func sortedCodes() []Code {
	codes := Codes()
	slices.SortFunc(codes, func(a, b Code) int { return cmp.Compare(a, b) })
	return codes
}
