package room

import "github.com/tandem-llm/tandem/internal/id"

// Effect is one thing the caller must do, in the order given.
type Effect interface{ isEffect() }

// Send hands a message to the session with To. Failing to send is no error:
// deadlines and the peer's own view end the room.
type Send struct {
	To  id.Incarnation
	Msg Message
}

// Enqueue puts a room into the admission queue. Paired rooms go first; an
// unpaired one (prefill, no READY yet) may be admitted early while few are.
type Enqueue struct {
	Room   id.Room
	Paired bool
}

// Evict takes a room's resources back (engine sequence, arena share); it stays
// in the admission queue, and is admitted again only when paired.
type Evict struct{ Room id.Room }

// Seek asks for a session with the room's prefill worker; PeerUp answers.
type Seek struct{ Room id.Room }

// Publish hands an exported chunk to the data plane.
type Publish struct {
	Room  id.Room
	To    id.Incarnation
	Gen   id.Generation
	Seq   uint32 // its ordinal in the hand-over
	Index int    // its ordinal in the prompt: positions from Index × C on
}

// Discard gives an exported chunk's memory back: decode has these positions.
type Discard struct {
	Room  id.Room
	Index int // its ordinal in the prompt
}

// StopWork cancels everything that works for a room: its place in queues, its
// engine sequence, its chunks in the data plane. Freed answers when all memory
// is back, perhaps much later: a request's end is not its memory's end.
type StopWork struct {
	Room  id.Room
	To    id.Incarnation // the peer whose transfer is to be cancelled; 0 if none
	Gen   id.Generation
	Cause *Cause
}

// Answer ends the leg: Cause.Code Done on success.
type Answer struct {
	Room  id.Room
	Cause *Cause
}

// Proceed says that decode's hand-over is complete: generation goes on under its
// own record.
type Proceed struct{ Room id.Room }

// Refuse answers a leg whose room cannot be created; the room that exists is
// not touched.
type Refuse struct {
	Room  id.Room
	RID   id.RID
	Cause *Cause
}

// Drop counts something that was ignored, by a reason with few values.
type Drop struct {
	Room   id.Room
	Reason string
}

// Moved records a transition. Its caller keeps it in the flight record.
type Moved struct {
	Room     id.Room
	From, To State
	On       string // the event's name
	Peer     id.Incarnation
	Cause    *Cause // set on the way to Failed
}

func (Send) isEffect()     {}
func (Enqueue) isEffect()  {}
func (Evict) isEffect()    {}
func (Seek) isEffect()     {}
func (Publish) isEffect()  {}
func (Discard) isEffect()  {}
func (StopWork) isEffect() {}
func (Answer) isEffect()   {}
func (Proceed) isEffect()  {}
func (Refuse) isEffect()   {}
func (Drop) isEffect()     {}
func (Moved) isEffect()    {}
