package room

import "time"

// Mono is a monotonic time: the time since some fixed moment of this process.
type Mono time.Duration

// After returns the Mono d later.
func (m Mono) After(d time.Duration) Mono { return m + Mono(d) }

// Sub returns the time from o to m.
func (m Mono) Sub(o Mono) time.Duration { return time.Duration(m - o) }

// Limits are the protocol's bounds. The zero value of a field means its default.
type Limits struct {
	// Ready is how long one half of a pair waits for the other while it costs
	// memory or memory of a name: READY without a leg then fails, a leg that was
	// admitted early is evicted. A quarter of what remains of the request, if less.
	Ready time.Duration
	// Bootstrap is how long decode, holding its cells, looks for a session.
	// A quarter of what remains of the request, if less.
	Bootstrap time.Duration
	// Stall is how long published bytes may lie unfetched.
	Stall time.Duration
	// Park is how long an ABORT waits for the room it came before.
	Park time.Duration
	// Tombstones bounds the ended rooms that are remembered: at least twice the
	// admissions. The oldest is forgotten first; that costs time, never correctness.
	Tombstones int
	// PerPeer bounds the rooms that one peer can make us remember before their
	// leg came (Parked, Early).
	PerPeer int
}

// Defaults of Limits.
const (
	DefaultReady      = 5 * time.Second
	DefaultBootstrap  = 5 * time.Second
	DefaultStall      = 10 * time.Second
	DefaultPark       = 30 * time.Second
	DefaultTombstones = 32768 // ≥ 2 × 10,000 clients that vanish at once, with room
	DefaultPerPeer    = 16384
)

func (l Limits) withDefaults() Limits {
	if l.Ready == 0 {
		l.Ready = DefaultReady
	}
	if l.Bootstrap == 0 {
		l.Bootstrap = DefaultBootstrap
	}
	if l.Stall == 0 {
		l.Stall = DefaultStall
	}
	if l.Park == 0 {
		l.Park = DefaultPark
	}
	if l.Tombstones == 0 {
		l.Tombstones = DefaultTombstones
	}
	if l.PerPeer == 0 {
		l.PerPeer = DefaultPerPeer
	}
	return l
}
