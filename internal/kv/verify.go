package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrHeader is wrapped by every refusal of Verify.
var ErrHeader = errors.New("KV blob refused")

// Verify is the trust boundary between a peer's bytes and the library: it says
// nil only if every byte of blob that is not a K or V row is exactly what this
// template's own library would have written for positions [p0, p1) of sequence
// seq, and the length is exact. It never acts on a value found in blob: all
// offsets come from the template, so nothing a peer wrote steers a read. It does
// not allocate when it accepts.
func (t *Template) Verify(blob []byte, p0, p1, seq int32) error {
	if p0 < 0 || p1 <= p0 {
		return fmt.Errorf("%w: positions [%d, %d)", ErrHeader, p0, p1)
	}
	if want := t.Size(int(p1 - p0)); len(blob) != want {
		return fmt.Errorf("%w: %d bytes for positions [%d, %d), want %d", ErrHeader, len(blob), p0, p1, want)
	}
	w := walk{b: blob}
	t.header(&w, p0, p1, seq)
	if w.bad {
		return fmt.Errorf("%w: byte %d of positions [%d, %d) reads %#x, want %#x", ErrHeader, w.badAt, p0, p1, w.got, w.want)
	}
	return nil
}

// Build writes every byte of blob that is not a row. blob must have exactly
// Size(p1-p0) bytes.
func (t *Template) Build(blob []byte, p0, p1, seq int32) error {
	if p0 < 0 || p1 <= p0 || len(blob) != t.Size(int(p1-p0)) {
		return fmt.Errorf("%d bytes for positions [%d, %d)", len(blob), p0, p1)
	}
	w := walk{b: blob, write: true}
	t.header(&w, p0, p1, seq)
	return nil
}

// header visits every field of a blob in order. Build and Verify are the same
// walk, so they cannot disagree.
func (t *Template) header(w *walk, p0, p1, seq int32) {
	n := uint64(p1 - p0)
	w.u32(t.Magic)
	w.u32(uint32(seq))
	for i := range t.Sections {
		s := &t.Sections[i]
		w.u32(s.Streams)
		w.u32(uint32(n))
		w.cells(p0, p1, seq)
		w.u32(0) // V not transposed
		w.u32(uint32(len(s.K)))
		for _, x := range s.K {
			w.tensor(x, n)
		}
		for _, x := range s.V {
			w.tensor(x, n)
		}
	}
}

// walk writes fields, or compares them and remembers the first that differs. The
// caller has checked the length, so no field lies outside b.
type walk struct {
	b     []byte
	off   int
	write bool

	bad       bool
	badAt     int
	got, want uint64
}

func (w *walk) u32(v uint32) {
	b := w.b[w.off : w.off+4]
	if w.write {
		binary.LittleEndian.PutUint32(b, v)
	} else if got := binary.LittleEndian.Uint32(b); got != v {
		w.differs(w.off, uint64(got), uint64(v))
	}
	w.off += 4
}

func (w *walk) u64(v uint64) {
	b := w.b[w.off : w.off+8]
	if w.write {
		binary.LittleEndian.PutUint64(b, v)
	} else if got := binary.LittleEndian.Uint64(b); got != v {
		w.differs(w.off, got, v)
	}
	w.off += 8
}

func (w *walk) cells(p0, p1, seq int32) {
	for p := p0; p < p1; p++ {
		w.u32(uint32(p))
		w.u32(1)
		w.u32(uint32(seq))
	}
}

func (w *walk) tensor(x Tensor, n uint64) {
	w.u32(uint32(x.Type))
	w.u64(x.Row)
	w.off += int(x.Row * n)
}

func (w *walk) differs(at int, got, want uint64) {
	if !w.bad {
		w.bad, w.badAt, w.got, w.want = true, at, got, want
	}
}

// Normalise makes a blob that this process's own library just wrote for
// [p0, p1) the one that Verify asks for: rows in the order of their positions,
// which a fragmented cache does not keep, and CanonicalSeq as sequence id. It
// reports a blob that has not exactly these positions.
func (t *Template) Normalise(blob []byte, p0, p1, seq int32) error {
	if p0 < 0 || p1 <= p0 || len(blob) != t.Size(int(p1-p0)) {
		return fmt.Errorf("exported %d bytes for positions [%d, %d), want %d", len(blob), p0, p1, t.Size(int(max(p1-p0, 0))))
	}
	n := int(p1 - p0)
	off := blobHead
	for i := range t.Sections {
		off += 8
		cells := blob[off : off+n*cellSize]
		off += n*cellSize + 8
		sorted := true
		for c := 0; c < n && sorted; c++ {
			sorted = int32(binary.LittleEndian.Uint32(cells[c*cellSize:])) == p0+int32(c)
		}
		var order []int // order[c]: where cell c's row belongs
		if !sorted {
			var err error
			if order, err = cellOrder(cells, p0, p1); err != nil {
				return fmt.Errorf("section %d: %w", i, err)
			}
		}
		for _, l := range [2][]Tensor{t.Sections[i].K, t.Sections[i].V} {
			for _, x := range l {
				off += layerHead
				if order != nil {
					permute(blob[off:off+n*int(x.Row)], int(x.Row), order)
				}
				off += n * int(x.Row)
			}
		}
		for c := range n {
			e := cells[c*cellSize:]
			binary.LittleEndian.PutUint32(e, uint32(p0)+uint32(c))
			if got := int32(binary.LittleEndian.Uint32(e[8:])); got != seq {
				return fmt.Errorf("section %d: cell %d belongs to sequence %d, want %d", i, c, got, seq)
			}
			binary.LittleEndian.PutUint32(e[8:], uint32(CanonicalSeq))
		}
	}
	binary.LittleEndian.PutUint32(blob[4:], uint32(CanonicalSeq))
	return t.Verify(blob, p0, p1, CanonicalSeq)
}

func cellOrder(cells []byte, p0, p1 int32) ([]int, error) {
	n := int(p1 - p0)
	order, seen := make([]int, n), make([]bool, n)
	for c := range n {
		p := int32(binary.LittleEndian.Uint32(cells[c*cellSize:]))
		if p < p0 || p >= p1 || seen[p-p0] {
			return nil, fmt.Errorf("cell %d has position %d, want each of [%d, %d) once", c, p, p0, p1)
		}
		seen[p-p0] = true
		order[c] = int(p - p0)
	}
	return order, nil
}

// permute moves row c to row order[c].
func permute(rows []byte, row int, order []int) {
	src := make([]byte, len(rows))
	copy(src, rows)
	for c, to := range order {
		copy(rows[to*row:(to+1)*row], src[c*row:(c+1)*row])
	}
}
