package room

import (
	"fmt"

	"github.com/tandem-llm/tandem/internal/id"
)

// Type names a room message. HELLO, PING, PONG and DRAIN belong to the session
// (package control), CHUNK and CREDIT to the data plane (package transfer).
type Type uint8

const (
	Ready    Type = 1 + iota // decode → prefill: I hold the memory, send
	Commit                   // decode → prefill: all verified and imported
	Abort                    // either: this room ends, not by a failure
	AbortAck                 // either: the abort is known here; my memory of the room is free or leased out
	Fail                     // either: this room ends by a failure
)

var typeNames = [...]string{Ready: "READY", Commit: "COMMIT", Abort: "ABORT", AbortAck: "ABORT_ACK", Fail: "FAIL"}

// String returns the message's name as the documents spell it.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Digest is the first 16 bytes of a SHA-256.
type Digest [16]byte

// Message is one room message. Only the fields of its type are meaningful.
type Message struct {
	Type Type
	Room id.Room
	Gen  id.Generation // 0 only in an ABORT or FAIL sent before READY

	// READY
	Tokens int32  // n: the prompt's tokens
	Digest Digest // of the prompt's token ids, see TokenDigest
	Have   int32  // tokens decode's own cache holds already; a multiple of C
	Window int64  // bytes decode will take before it acknowledges a chunk

	// COMMIT
	Chunks uint32 // chunks imported
	Sum    uint64 // fold of the chunks' payload sums (kv.Sum) in order, see FoldSum

	// ABORT, FAIL
	Cause Cause
}

// FoldSum adds one chunk's payload sum to the running digest that COMMIT carries.
// It is order-sensitive: rotate left by one, then XOR.
func FoldSum(sum, chunk uint64) uint64 { return (sum<<1 | sum>>63) ^ chunk }
