package api

import (
	"sync/atomic"

	"github.com/tandem-llm/tandem/internal/room"
)

// Budgets of this process, in bytes of buffered bodies.
const (
	// DefaultBodyBudget is eight bodies of the largest size, or 10,000 of 50 KiB.
	DefaultBodyBudget = 512 << 20
	// AbortBudget is for POST /abort_request, which must work while prompts fill the
	// other budget: aborts are what empties it.
	AbortBudget = 32 << 20
)

// Bodies is the budget for the bodies of all requests that this process has in flight,
// AbortBodies that for aborts.
var (
	Bodies      = NewBodyBudget(DefaultBodyBudget)
	AbortBodies = NewBodyBudget(AbortBudget)
)

// BodyBudget bounds the bytes of all bodies in flight together: a limit for each body
// alone lets a few dozen slow clients fill the memory. What is charged is the buffers'
// capacity, as it grows with the bytes that arrive: a client's word costs nothing.
type BodyBudget struct {
	limit int64
	used  atomic.Int64
}

// NewBodyBudget returns a budget of limit bytes.
func NewBodyBudget(limit int64) *BodyBudget { return &BodyBudget{limit: limit} }

// Used returns the bytes that are charged now.
func (b *BodyBudget) Used() int64 { return b.used.Load() }

// take charges n bytes, or none and returns false. It never waits.
func (b *BodyBudget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *BodyBudget) give(n int64) { b.used.Add(-n) }

func (b *BodyBudget) full() *room.Cause {
	return room.Because(room.QueueFull, "the bodies of the requests in flight fill the limit of %d bytes", b.limit)
}

// charged is one body's buffer, every byte of whose capacity is charged.
type charged struct {
	budget *BodyBudget
	buf    []byte
}

// firstBuffer is what a body gets before its first byte, in bytes.
const firstBuffer = 4 << 10

// grow makes room for one more byte at least, and no more than most bytes in all. The
// old buffer is charged until the new one has its bytes.
func (c *charged) grow(most int64) bool {
	old := int64(cap(c.buf))
	size := min(max(2*old, firstBuffer), most)
	if !c.budget.take(size) {
		return false
	}
	buf := make([]byte, len(c.buf), size)
	copy(buf, c.buf)
	c.buf = buf[:len(buf):size]
	c.budget.give(old)
	return true
}

func (c *charged) release() {
	c.budget.give(int64(cap(c.buf)))
	c.buf = nil
}
