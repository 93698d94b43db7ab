package control

import (
	"errors"
	"sync/atomic"
)

// counter counts for a peer and, through sum, for the whole node.
type counter struct {
	v   atomic.Uint64
	sum *counter
}

func (c *counter) add(n uint64) {
	c.v.Add(n)
	if c.sum != nil {
		c.sum.add(n)
	}
}

type drops struct {
	malformed, foreign, version, stale, oversize, panics, misplaced, full, fence counter
}

// under makes every counter of d count for total too.
func (d *drops) under(total *drops) {
	d.malformed.sum, d.foreign.sum, d.version.sum = &total.malformed, &total.foreign, &total.version
	d.stale.sum, d.oversize.sum, d.panics.sum = &total.stale, &total.oversize, &total.panics
	d.misplaced.sum, d.full.sum, d.fence.sum = &total.misplaced, &total.full, &total.fence
}

// reject counts a frame that Decode did not take.
func (d *drops) reject(err error) {
	var r *RejectError
	errors.As(err, &r)
	switch {
	case r != nil && r.Reason == Foreign:
		d.foreign.add(1)
	case r != nil && r.Reason == Versions:
		d.version.add(1)
	case r != nil && r.Reason == Oversize:
		d.oversize.add(1)
	default:
		d.malformed.add(1)
	}
}

func (d *drops) read() Drop {
	return Drop{
		Malformed: d.malformed.v.Load(), Foreign: d.foreign.v.Load(), Version: d.version.v.Load(),
		Stale: d.stale.v.Load(), Oversize: d.oversize.v.Load(), Panic: d.panics.v.Load(),
		Misplaced: d.misplaced.v.Load(), Full: d.full.v.Load(), Fence: d.fence.v.Load(),
	}
}
