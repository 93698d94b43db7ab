package room

import "fmt"

// Outcome is how a request ended, exactly one per accepted request (rid).
type Outcome uint8

const (
	OK       Outcome = iota // the model finished, or the hand-over is complete
	Aborted                 // the client left, or somebody who may asked for an abort
	Rejected                // the request could not be accepted as it is
	Timeout                 // its deadline, or the deadline of one of its waits, passed
	PeerLost                // the other worker died, froze or lost its connection
	Internal                // a fault of ours
)

var outcomeNames = [...]string{"ok", "aborted", "rejected", "timeout", "peer_lost", "internal"}

// String returns the outcome's metric label.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Code names a cause of an ending. The codes are the wire form, the metric
// label and the key of the error table (package api), so they never change
// meaning.
type Code string

const (
	Done                 Code = "done"                  // not an error
	ClientGone           Code = "client_gone"           // the client's connection ended
	AbortRequest         Code = "abort_request"         // POST /abort_request, or the router withdrew the leg
	LegLost              Code = "leg_lost"              // the router's connection to this worker ended
	DrainAbort           Code = "drain"                 // the worker is leaving service
	Deadline             Code = "deadline"              // the request's own deadline passed
	UnpairedTimeout      Code = "unpaired"              // the other leg never came: READY without a leg, or a leg without READY
	BootstrapTimeout     Code = "bootstrap_timeout"     // no session to the prefill worker in time
	TransferStall        Code = "transfer_stall"        // published bytes were not fetched, or promised ones did not come
	AdmissionTimeout     Code = "admission_timeout"     // no KV cells or arena share in time
	QueueFull            Code = "queue_full"            // too many requests wait already
	Draining             Code = "draining"              // the worker takes no new rooms
	TooLong              Code = "too_long"              // prompt + max_tokens exceeds the context
	AnswerTooLarge       Code = "answer_too_large"      // the answer is larger than the router relays
	BadRequest           Code = "bad_request"           // the body is not what the API takes
	ModelNotFound        Code = "model_not_found"       // no worker serves the model that the body names
	DuplicateRoom        Code = "duplicate_room"        // the room is live already
	RoomTaken            Code = "room_taken"            // another decode has this room
	TokenizationMismatch Code = "tokenization_mismatch" // the two legs tokenized differently
	LayoutMismatch       Code = "layout_mismatch"       // the two workers' KV layouts differ
	Corrupt              Code = "kv_corrupt"            // a chunk failed its checksum or header check
	CommitMismatch       Code = "commit_mismatch"       // chunk count or digest differ at COMMIT
	TransferLost         Code = "transfer_lost"         // the data connection broke
	PeerGone             Code = "peer_lost"             // the peer was fenced or came back as another incarnation
	NoPair               Code = "no_pair"               // the router has no usable pair
	EngineFailed         Code = "engine_failed"         // the library refused a batch
	Poisoned             Code = "poisoned"              // present in two consecutive worker deaths
	Protocol             Code = "protocol"              // the peer broke the room protocol
	Bug                  Code = "internal"              // a fault of ours that has no name of its own
)

// class says what a code means for the request, and whether another attempt on
// another pair with a new room may succeed.
type class struct {
	outcome   Outcome
	retryable bool
}

var classes = map[Code]class{
	Done:                 {OK, false},
	ClientGone:           {Aborted, false},
	AbortRequest:         {Aborted, false},
	LegLost:              {Aborted, false},
	DrainAbort:           {Aborted, true},
	Deadline:             {Timeout, false},
	UnpairedTimeout:      {Timeout, true},
	BootstrapTimeout:     {Timeout, true},
	TransferStall:        {Timeout, true},
	AdmissionTimeout:     {Timeout, true},
	QueueFull:            {Rejected, true},
	Draining:             {Rejected, true},
	TooLong:              {Rejected, false},
	AnswerTooLarge:       {Rejected, false}, // by a limit of ours: no worker is to blame, and another would answer the same
	BadRequest:           {Rejected, false},
	ModelNotFound:        {Rejected, false},
	DuplicateRoom:        {Rejected, false},
	RoomTaken:            {Rejected, true},
	TokenizationMismatch: {Internal, false},
	LayoutMismatch:       {Internal, true},
	Corrupt:              {Internal, true},
	CommitMismatch:       {Internal, true},
	TransferLost:         {PeerLost, true},
	PeerGone:             {PeerLost, true},
	NoPair:               {Rejected, true},
	EngineFailed:         {Internal, true},
	Poisoned:             {Rejected, false},
	Protocol:             {Internal, true},
	Bug:                  {Internal, true},
}

// Codes returns every known code.
func Codes() []Code {
	all := make([]Code, 0, len(classes))
	for c := range classes {
		all = append(all, c)
	}
	return all
}

// Cause is why something ended: a code, and a detail that names the value and
// the limit. The first cause of a room wins and travels to the client. A nil
// *Cause is never a cause; an ending without an error has code Done.
type Cause struct {
	Code   Code
	Detail string
}

// Because builds a cause; format and args make the detail.
func Because(code Code, format string, args ...any) *Cause {
	return &Cause{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Error makes a cause usable with context.WithCancelCause.
func (c *Cause) Error() string {
	if c.Detail == "" {
		return string(c.Code)
	}
	return string(c.Code) + ": " + c.Detail
}

// Outcome returns what the cause means for the request; an unknown code, as a
// newer peer may send, is Internal.
func (c *Cause) Outcome() Outcome {
	if k, ok := classes[c.Code]; ok {
		return k.outcome
	}
	return Internal
}

// Retryable says whether another attempt on another pair may succeed.
func (c *Cause) Retryable() bool { return classes[c.Code].retryable }

// Failure says whether the ending counts as a failure. Aborts and rejections do
// not: they trip no breaker and are counted apart.
func (c *Cause) Failure() bool {
	switch c.Outcome() {
	case OK, Aborted, Rejected:
		return false
	}
	return true
}
