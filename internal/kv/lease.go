package kv

import (
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// Lease is the right to use one span of an Arena's bytes. It is counted: every
// Alloc and Retain owes one Release; at the last one the bytes are free.
type Lease struct {
	arena *Arena
	id    id.LeaseID
	owner string
	off   int
	size  int // bytes taken from the arena, a multiple of leaseAlign
	mem   []byte
	born  time.Time
	refs  int // guarded by arena.mu
}

// ID returns the lease's identity, unique in this process's arena.
func (l *Lease) ID() id.LeaseID { return l.id }

// Bytes returns the leased memory, of the length asked for. It must not be
// touched after the holder's Release.
func (l *Lease) Bytes() []byte { return l.mem }

// Offset returns where the bytes begin in the arena, for a transport that names
// spans of a shared arena.
func (l *Lease) Offset() int { return l.off }

// Owner returns the label given to Alloc.
func (l *Lease) Owner() string { return l.owner }

// Age returns how long the lease has existed.
func (l *Lease) Age() time.Duration { return l.arena.now().Sub(l.born) }

// Retain adds a holder, who owes one more Release.
func (l *Lease) Retain() {
	l.arena.mu.Lock()
	defer l.arena.mu.Unlock()
	if l.refs == 0 {
		l.arena.gone(l, "Retain")
		return
	}
	l.refs++
}

// Release gives one holder's right back; the last one frees the bytes.
func (l *Lease) Release() {
	a := l.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.refs == 0 {
		a.gone(l, "Release")
		return
	}
	if l.refs--; l.refs > 0 {
		return
	}
	if a.strict {
		for i := range l.mem {
			l.mem[i] = 0xDB
		}
	}
	delete(a.leases, l.id)
	a.spans.give(l.off, l.size)
}

// gone notes a call on a lease whose bytes may already be another's. Counting
// is enough to be safe: the call changed nothing.
func (a *Arena) gone(l *Lease, call string) {
	a.misuse++
	if a.strict {
		panic(fmt.Sprintf("%s of lease %d of %s, which is already released", call, l.id, l.owner))
	}
}
