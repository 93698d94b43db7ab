// Package control carries room messages between two workers: one gRPC
// bidirectional stream per session, dialled by decode, accepted by prefill.
// The whole wire is in wire.go.
//
// A Node keeps sessions alive (HELLO, PING, back-off), tells who is alive,
// suspect or fenced, and moves room messages through bounded outboxes. It knows
// no rule about rooms: those live once, in package room.
//
// The caller owes Run (it owns every goroutine and joins them), a Handler that
// returns at once, and a Hello function that refuses a peer whose layout does
// not fit. Delivery is not promised: a message that was handed to the network
// when the connection broke may be lost, and one may come twice after a
// reconnect. The room protocol's deadlines and tombstones answer both.
//
// The package never blocks a sender, never lets bytes from a peer end more than
// that peer's own connection, and never judges a peer dead for a delay that was
// our own.
package control
