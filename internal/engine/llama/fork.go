package llama

import (
	"fmt"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/id"
)

// window is what is known of a sliding-window model's second cache. The library
// makes it as large as the windows of all its sequences and one batch, and reuses
// a cell whose position has left its sequence's window, but never one that two
// sequences share. So forks are paid for here, or a call could find it full.
type window struct {
	size  int32 // W; 0: no window, or all positions are kept
	cells int32 // that fit beside one batch; 0: as many as in the other cache, so never short
}

func (b *Backend) learnWindow() {
	w := int32(yzma.ModelNSWA(b.model))
	if w <= 0 || b.c.SWAFull {
		return
	}
	b.window.size = w
	if all := w * int32(b.seqs+spares); int(all)+b.rows < int(yzma.NCtx(b.ctx)) {
		b.window.cells = all
	}
}

// ended is Info.Window of a model whose state has no positions.
const ended = -1

func (b *Backend) infoWindow() int {
	if b.stateful() != "" {
		return ended
	}
	return int(b.window.size)
}

// Kept returns the first position of s that the window's cache still has.
func (b *Backend) Kept(s id.SeqID) int32 {
	if b.window.size == 0 || !b.has(s) || b.lengths[s] == 0 {
		return 0
	}
	p, err := yzma.MemorySeqPosMin(b.mem, yzma.SeqId(s))
	if err != nil || p < 0 {
		return b.lengths[s]
	}
	return int32(p)
}

func (b *Backend) has(s id.SeqID) bool { return s >= 0 && int(s) < b.seqs }

// CanFork says whether a fork of src at p1 has all it attends to, and whether the
// window's cache has cells to spare for those that become unusable by it.
func (b *Backend) CanFork(src id.SeqID, p1 int32) bool {
	if !b.has(src) || p1 <= 0 || p1 > b.lengths[src] {
		return false
	}
	if b.info.Window == ended && p1 != b.lengths[src] {
		return false // the state is that of its end
	}
	if b.window.size == 0 {
		return true
	}
	kept := b.Kept(src)
	if kept > max(0, p1-b.window.size+1) { // position p1 sees itself and size−1 before it
		return false
	}
	if b.window.cells == 0 {
		return true
	}
	need := 2*b.window.size + p1 - kept // the fork's own window and the spares'
	for s, n := range b.lengths {
		need += min(n, b.window.size) + b.pins[s]
	}
	return need <= b.window.cells
}

// Fork makes dst share positions [0, p1) of src.
func (b *Backend) Fork(src, dst id.SeqID, p1 int32) error {
	if !b.has(dst) || b.lengths[dst] != 0 || src == dst || !b.CanFork(src, p1) {
		return fmt.Errorf("fork of [0, %d) of sequence %d to %d", p1, src, dst)
	}
	if b.window.size > 0 {
		b.pins[dst] = p1 - b.Kept(src)
	}
	yzma.MemorySeqCp(b.mem, yzma.SeqId(src), yzma.SeqId(dst), 0, yzma.Pos(p1))
	b.lengths[dst] = p1
	if hi, err := yzma.MemorySeqPosMax(b.mem, yzma.SeqId(dst)); err != nil || int32(hi) != p1-1 {
		b.Drop(dst)
		return fmt.Errorf("fork of [0, %d) of sequence %d: the library has positions up to %d", p1, src, hi)
	}
	return nil
}
