package sim

import (
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

func (b *Backend) seq(s id.SeqID) (*sequence, error) {
	if s < 0 || int(s) >= len(b.seqs) {
		return nil, fmt.Errorf("sequence %d of %d", s, len(b.seqs))
	}
	return &b.seqs[s], nil
}

func (b *Backend) length(q *sequence) int32 { return int32(len(q.at)) }

// take appends an empty cell to a sequence and returns its row; nil if all are taken.
func (b *Backend) take(q *sequence) []byte {
	n := len(b.free)
	if n == 0 {
		return nil
	}
	c := &b.cells[b.free[n-1]]
	q.at, b.free = append(q.at, b.free[n-1]), b.free[:n-1]
	if c.row == nil {
		c.row = make([]byte, b.row)
	}
	c.seqs = 1
	return c.row
}

// give takes the positions from p0 on away from a sequence.
func (b *Backend) give(q *sequence, p0 int32) {
	for _, i := range q.at[p0:] {
		if b.cells[i].seqs--; b.cells[i].seqs == 0 {
			b.free = append(b.free, i)
		}
	}
	q.at = q.at[:p0]
	q.checked = min(q.checked, int(p0))
}

func (b *Backend) rowAt(q *sequence, p int) []byte { return b.cells[q.at[p]].row }

// Compute evaluates the rows. It refuses what llama.cpp refuses: too many rows,
// positions that do not follow, no free cell.
func (b *Backend) Compute(rows []engine.Row) error {
	for i, l := range b.logits {
		if l != nil {
			b.spare = append(b.spare, l)
			b.logits[i] = nil
		}
	}
	b.logits = b.logits[:0]
	if len(rows) == 0 || len(rows) > b.c.MaxRows {
		return fmt.Errorf("%d rows in one call, of at most %d", len(rows), b.c.MaxRows)
	}
	if err := b.call(Op{Kind: "compute", Rows: len(rows)}, b.c.CallTime+time.Duration(len(rows))*b.c.TokenTime); err != nil {
		return err
	}
	for i, r := range rows {
		if err := b.one(r); err != nil {
			for i--; i >= 0; i-- { // what was before this call stays
				q := &b.seqs[rows[i].Seq]
				b.give(q, min(rows[i].Pos, b.length(q)))
			}
			return err
		}
	}
	return nil
}

// one computes one row.
func (b *Backend) one(r engine.Row) error {
	q, err := b.seq(r.Seq)
	if err != nil {
		return err
	}
	switch n := b.length(q); {
	case r.Pos != n:
		return fmt.Errorf("sequence %d: position %d does not follow %d", r.Seq, r.Pos, n-1)
	case r.Token < 0 || int(r.Token) >= b.c.Vocab:
		return fmt.Errorf("sequence %d: token %d of %d", r.Seq, r.Token, b.c.Vocab)
	case len(b.free) == 0:
		return fmt.Errorf("no free cell of %d for position %d of sequence %d", b.c.Cells, r.Pos, r.Seq)
	}
	b.check(q)
	h := link(b.hash(q), r.Token, r.Pos)
	writeRow(b.take(q), h, r.Token, r.Pos)
	q.checked++
	var l []float32
	if r.Logits {
		l = b.makeLogits(q, h, r.Pos+1)
	}
	b.logits = append(b.logits, l)
	return nil
}

// hash returns the chain hash that the KV itself holds.
func (b *Backend) hash(q *sequence) uint64 {
	if len(q.at) == 0 {
		return chainSeed
	}
	return rowHash(b.rowAt(q, len(q.at)-1))
}

// check looks at every row not looked at yet, as attention would: damage at any
// position shows in what is generated after it.
func (b *Backend) check(q *sequence) {
	for n := int(b.length(q)); q.checked < n; q.checked++ {
		h := uint64(chainSeed)
		if q.checked > 0 {
			h = rowHash(b.rowAt(q, q.checked-1))
		}
		row := b.rowAt(q, q.checked)
		if !rowHolds(row, b.scratch, h, int32(q.checked)) {
			q.corrupt = true
		}
	}
}

// Heights of the logits: the peak is what greedy takes; at temperature 1 it has
// about two thirds of the mass and eight others share most of the rest.
const (
	peak  = 12
	other = 9.2
)

func (b *Backend) makeLogits(q *sequence, h uint64, pos int32) []float32 {
	var l []float32
	if n := len(b.spare); n > 0 {
		l, b.spare = b.spare[n-1], b.spare[:n-1]
		clear(l)
	} else {
		l = make([]float32, b.c.Vocab)
	}
	for i := range uint64(8) {
		l[firstWord+int(mix(h+i)%uint64(b.c.Vocab-firstWord))] = other
	}
	if q.corrupt {
		l[Corrupt] = 2 * peak
	} else {
		l[choose(b.c, h, pos)] = peak
	}
	return l
}

// Logits returns the logits of the i-th row of the last Compute.
func (b *Backend) Logits(i int) []float32 {
	if i < 0 || i >= len(b.logits) {
		return nil
	}
	return b.logits[i]
}

// Export writes the chunk [p0, p1) of a sequence to dst.
func (b *Backend) Export(s id.SeqID, p0, p1 int32, dst []byte) (int, error) {
	q, err := b.seq(s)
	if err != nil {
		return 0, err
	}
	if p0 < 0 || p1 <= p0 || p1 > b.length(q) {
		return 0, fmt.Errorf("export of [%d, %d), sequence %d has [0, %d)", p0, p1, s, b.length(q))
	}
	n := b.template.Size(int(p1 - p0))
	if len(dst) < n {
		return 0, fmt.Errorf("export of [%d, %d) needs %d bytes, not %d", p0, p1, n, len(dst))
	}
	if p0 < b.Kept(s) {
		return 0, fmt.Errorf("export of [%d, %d): the window begins at %d", p0, p1, b.Kept(s))
	}
	if err := b.call(Op{Kind: "export", Seq: s, P0: p0, P1: p1}, b.c.ExportTime); err != nil {
		return 0, err
	}
	if err := b.template.Build(dst[:n], p0, p1, kv.CanonicalSeq); err != nil {
		return 0, err
	}
	k, v := b.halves(dst[:n], p1-p0)
	for i := range int(p1 - p0) {
		row := b.rowAt(q, int(p0)+i)
		copy(k[i*b.kRow():], row[:b.kRow()])
		copy(v[i*b.vRow():], row[b.kRow():b.row])
	}
	return n, nil
}

// Import verifies a chunk's header and appends its KV to a sequence.
func (b *Backend) Import(s id.SeqID, p0, p1 int32, src []byte) error {
	q, err := b.seq(s)
	if err != nil {
		return err
	}
	if err := b.template.Verify(src, p0, p1, kv.CanonicalSeq); err != nil {
		return err
	}
	if p0 != b.length(q) {
		return fmt.Errorf("import of [%d, %d), sequence %d ends at %d", p0, p1, s, b.length(q))
	}
	if int(p1-p0) > len(b.free) {
		return fmt.Errorf("no %d free cells of %d", p1-p0, b.c.Cells)
	}
	if err := b.call(Op{Kind: "import", Seq: s, P0: p0, P1: p1}, b.c.ImportTime); err != nil {
		return err
	}
	k, v := b.halves(src, p1-p0)
	for i := range int(p1 - p0) {
		row := b.take(q)
		copy(row, k[i*b.kRow():(i+1)*b.kRow()])
		copy(row[b.kRow():], v[i*b.vRow():(i+1)*b.vRow()])
	}
	return nil
}

func (b *Backend) kRow() int { return b.row / 2 }
func (b *Backend) vRow() int { return b.row - b.row/2 }

// halves returns where a blob's K rows and V rows lie. V ends the blob; 12 bytes
// of type and row size are between the two.
func (b *Backend) halves(blob []byte, n int32) (k, v []byte) {
	v = blob[len(blob)-int(n)*b.vRow():]
	end := len(blob) - len(v) - 12
	return blob[end-int(n)*b.kRow() : end], v
}

// Kept returns the first position that a layer with the configured window has.
func (b *Backend) Kept(s id.SeqID) int32 {
	q, err := b.seq(s)
	if err != nil || b.c.Window <= 0 {
		return 0
	}
	return max(0, b.length(q)-int32(b.c.Window)+1)
}

// CanFork says whether src can be forked at p1.
func (b *Backend) CanFork(src id.SeqID, p1 int32) bool {
	q, err := b.seq(src)
	if err != nil || p1 <= 0 || p1 > b.length(q) {
		return false
	}
	switch w := int32(b.c.Window); {
	case w < 0:
		return p1 == b.length(q)
	case w > 0:
		return b.Kept(src) <= max(0, p1-w+1)
	}
	return true
}

// Fork makes dst share positions [0, p1) of src.
func (b *Backend) Fork(src, dst id.SeqID, p1 int32) error {
	to, err := b.seq(dst)
	if err != nil {
		return err
	}
	if !b.CanFork(src, p1) || len(to.at) > 0 {
		return fmt.Errorf("fork of [0, %d) of sequence %d to %d", p1, src, dst)
	}
	if err := b.call(Op{Kind: "fork", Seq: src, P1: p1}, 0); err != nil {
		return err
	}
	for _, i := range b.seqs[src].at[:p1] {
		b.cells[i].seqs++
		to.at = append(to.at, i)
	}
	return nil
}

// Truncate drops positions from p0 on; all of them with a negative window.
func (b *Backend) Truncate(s id.SeqID, p0 int32) {
	q, err := b.seq(s)
	if err != nil || p0 < 0 || p0 >= b.length(q) {
		return
	}
	if b.c.Window < 0 {
		p0 = 0
	}
	b.give(q, p0)
}

// Drop drops a sequence.
func (b *Backend) Drop(s id.SeqID) {
	if q, err := b.seq(s); err == nil {
		b.give(q, 0)
		*q = sequence{at: q.at[:0]}
	}
}
