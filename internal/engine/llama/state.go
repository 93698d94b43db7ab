package llama

import (
	"fmt"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
)

var _ engine.Stater = (*Backend)(nil)

// StateBytes returns the size of a sequence's whole state, in any layout.
func (b *Backend) StateBytes(s id.SeqID) int {
	if !b.has(s) {
		return 0
	}
	return int(yzma.StateSeqGetSizeExt(b.ctx, yzma.SeqId(s), 0))
}

// SaveState writes a sequence's state as the library has it.
func (b *Backend) SaveState(s id.SeqID, dst []byte) error {
	want := b.StateBytes(s)
	if want == 0 || len(dst) < want {
		return fmt.Errorf("the state of sequence %d has %d bytes, there are %d", s, want, len(dst))
	}
	if n := int(yzma.StateSeqGetDataExt(b.ctx, dst, yzma.SeqId(s), 0)); n != want {
		return fmt.Errorf("the state of sequence %d has %d bytes, want %d: %s", s, n, want, heard.firstError())
	}
	return nil
}

// LoadState makes s what SaveState wrote. Only this process wrote src: it is not
// verified.
func (b *Backend) LoadState(s id.SeqID, n int32, src []byte) error {
	if !b.has(s) || b.lengths[s] != 0 {
		return fmt.Errorf("sequence %d is not empty", s)
	}
	got := int(yzma.StateSeqSetDataExt(b.ctx, src, yzma.SeqId(s), 0))
	hi, err := yzma.MemorySeqPosMax(b.mem, yzma.SeqId(s))
	if got != len(src) || err != nil || int32(hi) != n-1 {
		yzma.MemorySeqRm(b.mem, yzma.SeqId(s), -1, -1)
		return fmt.Errorf("sequence %d: %d of %d bytes taken, positions up to %d of %d: %s", s, got, len(src), hi, n-1, heard.firstError())
	}
	b.lengths[s] = n
	return nil
}
