package kv

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// ErrArenaFull says that no free span is long enough now. It passes: a lease
// released later may make room.
var ErrArenaFull = errors.New("arena full")

// leaseAlign is the alignment of every lease, in bytes: one cache line, so that
// two leases written by two goroutines never share one.
const leaseAlign = 64

// ArenaConfig says how large an Arena is.
type ArenaConfig struct {
	// Bytes is the arena's size. It is rounded up to whole pages. Required.
	Bytes int
	// Shared makes the memory a memfd that other processes may map read-only
	// (see Arena.File) instead of private anonymous memory.
	Shared bool
	// Strict makes a Release or Retain of a lease that is already gone panic, and
	// fills released bytes with 0xDB. Meant for tests; without it such calls are
	// counted in Stats.Misuse.
	Strict bool
	// Now is the clock for lease ages. Default time.Now.
	Now func() time.Time
}

// Arena is mmap memory outside Go's heap, dealt out as leases. The engine
// library may be given any of it: it never moves. Safe for concurrent use.
type Arena struct {
	strict bool
	now    func() time.Time
	mem    []byte
	shared *sharedFile

	mu     sync.Mutex
	spans  spans
	leases map[id.LeaseID]*Lease
	last   id.LeaseID
	misuse uint64
	closed bool
}

// NewArena maps and pre-faults an arena. Callers owe it one Close.
func NewArena(c ArenaConfig) (*Arena, error) {
	if c.Bytes <= 0 {
		return nil, fmt.Errorf("arena of %d bytes: give a size above 0", c.Bytes)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Arena{strict: c.Strict, now: c.Now, leases: make(map[id.LeaseID]*Lease)}
	var err error
	if a.mem, a.shared, err = mapMemory(c.Bytes, c.Shared); err != nil {
		return nil, fmt.Errorf("arena of %d bytes: %w", c.Bytes, err)
	}
	a.spans.reset(len(a.mem))
	return a, nil
}

// Size returns the arena's size in bytes.
func (a *Arena) Size() int { return len(a.mem) }

// Alloc leases n bytes, 64-byte aligned, contents undefined, with one reference
// that the caller owes a Release. It never waits: without a free span that is
// long enough it returns an error that wraps ErrArenaFull. owner is a label for
// Stats, such as a room's number; n may be 0.
func (a *Arena) Alloc(n int, owner string) (*Lease, error) {
	if n < 0 {
		return nil, fmt.Errorf("lease of %d bytes", n)
	}
	size := len(a.mem) + 1 // does not fit, whatever is free
	if n <= len(a.mem) {
		size = (n + leaseAlign - 1) &^ (leaseAlign - 1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errors.New("arena closed")
	}
	off, ok := a.spans.take(size)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes asked for by %s, %d of %d free, longest span %d, %d leases",
			ErrArenaFull, n, owner, a.spans.free, len(a.mem), a.spans.longest(), len(a.leases))
	}
	a.last++
	l := &Lease{arena: a, id: a.last, owner: owner, off: off, size: size, born: a.now(), refs: 1,
		mem: a.mem[off : off+n : off+n]}
	a.leases[l.id] = l
	return l, nil
}

// ArenaStats is what an arena holds at one moment.
type ArenaStats struct {
	Total   int            `json:"total_bytes"` // in all
	Free    int            `json:"free_bytes"`  // not leased
	Leases  int            `json:"leases"`      // alive
	Oldest  time.Duration  `json:"oldest_ns"`   // age of the oldest lease; 0 without one
	ByOwner map[string]int `json:"by_owner"`    // leased bytes, alignment included, by owner
	Misuse  uint64         `json:"misuse"`      // Release and Retain calls on leases already gone
}

// Stats returns the arena's gauges. Free plus ByOwner's sum is always Total.
func (a *Arena) Stats() ArenaStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := ArenaStats{Total: len(a.mem), Free: a.spans.free, Leases: len(a.leases),
		ByOwner: make(map[string]int), Misuse: a.misuse}
	now := a.now()
	for _, l := range a.leases {
		s.ByOwner[l.owner] += l.size
		if age := now.Sub(l.born); age > s.Oldest {
			s.Oldest = age
		}
	}
	return s
}

// Close unmaps the memory. It refuses while leases are alive: their holders'
// slices would point nowhere.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if n := len(a.leases); n > 0 {
		return fmt.Errorf("arena still has %d leases", n)
	}
	a.closed = true
	return unmapMemory(a.mem, a.shared)
}
