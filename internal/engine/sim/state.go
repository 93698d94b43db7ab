package sim

import (
	"fmt"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
)

var _ engine.Stater = (*Backend)(nil)

// StateBytes returns the size of a sequence's rows.
func (b *Backend) StateBytes(s id.SeqID) int {
	q, err := b.seq(s)
	if err != nil {
		return 0
	}
	return len(q.at) * b.row
}

// SaveState writes a sequence's rows to dst.
func (b *Backend) SaveState(s id.SeqID, dst []byte) error {
	q, err := b.seq(s)
	if err != nil {
		return err
	}
	if len(dst) < len(q.at)*b.row {
		return fmt.Errorf("%d bytes for %d positions", len(dst), len(q.at))
	}
	if err := b.call(Op{Kind: "save", Seq: s, P1: b.length(q)}, b.c.ExportTime); err != nil {
		return err
	}
	for p := range q.at {
		copy(dst[p*b.row:], b.rowAt(q, p))
	}
	return nil
}

// LoadState fills an empty sequence with rows that SaveState wrote.
func (b *Backend) LoadState(s id.SeqID, n int32, src []byte) error {
	q, err := b.seq(s)
	if err != nil {
		return err
	}
	if len(q.at) > 0 || len(src) < int(n)*b.row || int(n) > len(b.free) {
		return fmt.Errorf("no room for %d positions in sequence %d", n, s)
	}
	if err := b.call(Op{Kind: "load", Seq: s, P1: n}, b.c.ImportTime); err != nil {
		return err
	}
	for p := range int(n) {
		copy(b.take(q), src[p*b.row:(p+1)*b.row])
	}
	return nil
}
