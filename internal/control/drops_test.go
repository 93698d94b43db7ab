package control

import "testing"

func TestEveryReasonForADropHasALabel(t *testing.T) {
	d := Drop{Malformed: 1, Foreign: 1, Version: 1, Stale: 1, Oversize: 1, Panic: 1, Misplaced: 1, Full: 1, Fence: 1}
	var sum uint64
	for _, n := range d.ByReason() {
		sum += n
	}
	if sum != d.Total() || sum != 9 {
		t.Errorf("%d of %d drops have a label", sum, d.Total())
	}
}
