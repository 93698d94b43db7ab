// Package keeper runs a room.Book in a process: it gives it a clock and a lock,
// performs its effects in the order they came, and sweeps its deadlines.
//
// Effects are performed without the lock, by whichever goroutine is at it, so a
// performer may call Do again: its effects then follow the ones before. The
// performer owes returning at once, as every caller of Do waits behind it in turn.
package keeper
