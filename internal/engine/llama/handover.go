package llama

import (
	"errors"
	"fmt"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// ChunkBytes returns the exact size of a chunk's blob; 0 if the model's KV
// cannot be handed over.
func (b *Backend) ChunkBytes(tokens int) int {
	if b.template == nil {
		return 0
	}
	return b.template.Size(tokens)
}

// Export writes the KV of [p0, p1) to dst in its one canonical form.
func (b *Backend) Export(s id.SeqID, p0, p1 int32, dst []byte) (int, error) {
	if b.template == nil {
		return 0, errors.New(b.info.HandOver)
	}
	if !b.has(s) || p0 < 0 || p1 <= p0 || p1 > b.lengths[s] {
		return 0, fmt.Errorf("export of [%d, %d) of sequence %d", p0, p1, s)
	}
	size := b.template.Size(int(p1 - p0))
	if len(dst) < size {
		return 0, fmt.Errorf("export of [%d, %d) needs %d bytes, not %d", p0, p1, size, len(dst))
	}
	n, err := b.exportRaw(s, p0, p1, dst[:size])
	if err != nil {
		return 0, err
	}
	if n != size {
		return 0, fmt.Errorf("export of [%d, %d) has %d bytes, want %d: %s", p0, p1, n, size, heard.firstError())
	}
	if err := b.template.Normalise(dst[:size], p0, p1, int32(b.exportSpare())); err != nil {
		return 0, fmt.Errorf("export of [%d, %d): %w", p0, p1, err)
	}
	return size, nil
}

// exportRaw writes what the library writes, through the export spare.
func (b *Backend) exportRaw(s id.SeqID, p0, p1 int32, dst []byte) (n int, err error) {
	spare := b.exportSpare()
	yzma.MemorySeqCp(b.mem, yzma.SeqId(s), spare, yzma.Pos(p0), yzma.Pos(p1))
	defer func() { err = errors.Join(err, b.empty(spare)) }()
	if want := int(yzma.StateSeqGetSizeExt(b.ctx, spare, 0)); want > len(dst) {
		return 0, fmt.Errorf("the state of [%d, %d) has %d bytes, want %d", p0, p1, want, len(dst))
	}
	return int(yzma.StateSeqGetDataExt(b.ctx, dst, spare, 0)), nil
}

// empty drops a spare and checks that it is gone.
func (b *Backend) empty(spare yzma.SeqId) error {
	yzma.MemorySeqRm(b.mem, spare, -1, -1)
	if p, err := yzma.MemorySeqPosMax(b.mem, spare); err != nil || p >= 0 {
		return fmt.Errorf("spare sequence %d still has positions up to %d (%v)", spare, p, err)
	}
	return nil
}

// Import verifies src and appends its KV to s. The library reads src only after
// every byte of its header was found to be the one expected; the KV enters a
// temporary sequence and becomes part of s only when it is whole.
func (b *Backend) Import(s id.SeqID, p0, p1 int32, src []byte) (err error) {
	if b.template == nil {
		return errors.New(b.info.HandOver)
	}
	if !b.has(s) || p0 != b.lengths[s] {
		return fmt.Errorf("import of [%d, %d) into sequence %d", p0, p1, s)
	}
	if int(p1-p0) > b.rows {
		return fmt.Errorf("import of [%d, %d): more than %d positions at once", p0, p1, b.rows)
	}
	if err := b.template.Verify(src, p0, p1, kv.CanonicalSeq); err != nil {
		return err
	}
	spare := b.importSpare()
	defer func() { err = errors.Join(err, b.empty(spare)) }()
	if n := int(yzma.StateSeqSetDataExt(b.ctx, src, spare, 0)); n != len(src) {
		defer heard.drain(b.c.Log)
		return fmt.Errorf("import of [%d, %d): the library took %d of %d bytes: %s", p0, p1, n, len(src), heard.firstError())
	}
	lo, _ := yzma.MemorySeqPosMin(b.mem, spare)
	hi, _ := yzma.MemorySeqPosMax(b.mem, spare)
	if int32(lo) != p0 || int32(hi) != p1-1 {
		return fmt.Errorf("import of [%d, %d): the library has positions %d to %d", p0, p1, lo, hi)
	}
	yzma.MemorySeqCp(b.mem, spare, yzma.SeqId(s), yzma.Pos(p0), yzma.Pos(p1))
	b.lengths[s] = p1
	return nil
}
