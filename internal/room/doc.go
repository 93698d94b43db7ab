// Package room is the hand-over protocol, both sides of it: what a prefill and a
// decode worker do when a leg, a message, a chunk, an abort, a lost peer or a
// deadline comes, in every state a room can be in.
//
// It is pure. It holds no lock, starts no goroutine, reads no clock and does no
// I/O: time comes in as a Mono, everything that happened as a method of Book,
// and what is to be done goes out as a list of Effects that the caller performs
// in order. So every history can be replayed, explored and mutated in tests.
//
// The rules are data, in table.go: (state × event) → next state and actions, no
// cell empty. What an event is, given a room's record (a READY may be the first,
// the same again, another decode's, or one with other tokens), is decided by the
// guards in input.go. docs/protocol.md is generated from both.
//
// The caller owes: one goroutine at a time; a Mono that never goes back; every
// Effect performed; and a call of Sweep no later than Next says.
package room
