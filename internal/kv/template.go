package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"
)

// CanonicalSeq is the sequence id every hand-over blob carries, whatever the
// library wrote: Normalise puts it in, Verify asks for it.
const CanonicalSeq int32 = 0

// Sizes in bytes of the parts of llama.cpp's sequence state, little endian:
//
//	u32 magic, u32 sequence id, then per section
//	u32 streams, u32 cells N, N × {i32 position, u32 1, i32 sequence id},
//	u32 V transposed, u32 layers L,
//	L × {i32 K type, u64 K row, N × row}, L × {i32 V type, u64 V row, N × row}
//
// (no V at all where V is a view of K: multi-head latent attention)
const (
	blobHead    = 4 + 4
	sectionHead = 4 + 4 + 4 + 4
	cellSize    = 4 + 4 + 4
	layerHead   = 4 + 8
)

// Tensor is one layer's K or V rows: the ggml type and one row's size in bytes.
type Tensor struct {
	Type int32
	Row  uint64
}

// Section is one cache of the model: plain attention has one, a sliding-window
// model two, base and window.
type Section struct {
	Streams uint32
	K, V    []Tensor // by layer; no V where the model has none of its own (MLA)
}

// Template is everything in a state blob that does not depend on the tokens. A
// worker learns it at load from a blob its own library wrote, and from then on
// builds the header it expects instead of reading the one a peer sent. It is
// immutable after Seal, which Learn calls.
type Template struct {
	Magic    uint32
	Sections []Section

	perCell  uint64 // bytes of one token: rows and cell entries
	constant uint64 // bytes of everything else
	scratch  int    // longest row
}

// Limits of a Template. They are far beyond any model and keep every size in an
// int64.
const (
	maxSections = 8
	maxLayers   = 4096
	maxRow      = 1 << 24
)

// Seal checks a Template's parts and computes its sizes. A Template made by
// hand needs it before use.
func (t *Template) Seal() error {
	if len(t.Sections) == 0 || len(t.Sections) > maxSections {
		return fmt.Errorf("%d cache sections", len(t.Sections))
	}
	t.perCell, t.constant, t.scratch = 0, blobHead, 0
	for i, s := range t.Sections {
		if s.Streams != 1 {
			return fmt.Errorf("section %d has %d streams, want 1: the cache is not unified", i, s.Streams)
		}
		if len(s.K) == 0 || len(s.K) > maxLayers || (len(s.V) != len(s.K) && len(s.V) != 0) {
			return fmt.Errorf("section %d has %d K and %d V layers", i, len(s.K), len(s.V))
		}
		t.constant += sectionHead + layerHead*uint64(len(s.K)+len(s.V))
		t.perCell += cellSize
		for _, l := range [][]Tensor{s.K, s.V} {
			for _, x := range l {
				if x.Row == 0 || x.Row > maxRow {
					return fmt.Errorf("section %d has a row of %d bytes", i, x.Row)
				}
				t.perCell += x.Row
				t.scratch = max(t.scratch, int(x.Row))
			}
		}
	}
	return nil
}

// Size returns the exact length of the blob for this many tokens.
func (t *Template) Size(tokens int) int {
	return int(t.constant + t.perCell*uint64(tokens))
}

// PerToken returns the bytes each token adds to a blob.
func (t *Template) PerToken() int { return int(t.perCell) }

// Fingerprint hashes the template: two workers whose templates differ cannot
// read each other's blobs.
func (t *Template) Fingerprint() uint64 {
	b := binary.LittleEndian.AppendUint32(nil, t.Magic)
	for _, s := range t.Sections {
		b = binary.LittleEndian.AppendUint32(b, s.Streams)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s.K)))
		for _, l := range [][]Tensor{s.K, s.V} {
			for _, x := range l {
				b = binary.LittleEndian.AppendUint32(b, uint32(x.Type))
				b = binary.LittleEndian.AppendUint64(b, x.Row)
			}
		}
	}
	return xxh3.Hash(b)
}

// Learn reads a blob that this process's own library wrote for [p0, p1) of
// sequence seq and returns the template. Never give it a peer's bytes. A form
// it does not know completely is an error that says what is unknown, and the
// model's KV can then not be handed over.
func Learn(blob []byte, p0, p1, seq int32) (*Template, error) {
	if p0 < 0 || p1 <= p0 {
		return nil, fmt.Errorf("probe of positions [%d, %d)", p0, p1)
	}
	r := reader{b: blob}
	t := &Template{Magic: r.u32()}
	if got := r.u32(); r.ok() && int32(got) != seq {
		return nil, fmt.Errorf("the probe's sequence id reads %d, want %d", int32(got), seq)
	}
	for r.ok() && len(r.b) > 0 {
		if len(t.Sections) == maxSections {
			return nil, errors.New("too many sections")
		}
		s, err := learnSection(&r, p0, p1, seq)
		if err != nil {
			return nil, fmt.Errorf("section %d: %w", len(t.Sections), err)
		}
		t.Sections = append(t.Sections, s)
	}
	if !r.ok() {
		return nil, errors.New("the probe ends in the middle of a field")
	}
	if err := t.Seal(); err != nil {
		return nil, err
	}
	if got := t.Size(int(p1 - p0)); got != len(blob) {
		return nil, fmt.Errorf("the probe has %d bytes, the template makes %d", len(blob), got)
	}
	return t, nil
}

func learnSection(r *reader, p0, p1, seq int32) (Section, error) {
	s := Section{Streams: r.u32()}
	if n := r.u32(); r.ok() && n != uint32(p1-p0) {
		return s, fmt.Errorf("%d cells, want %d", n, p1-p0)
	}
	for range p1 - p0 {
		// A probe may come from a fragmented cache, so only the range is checked.
		pos, ids, id := int32(r.u32()), r.u32(), int32(r.u32())
		if r.ok() && (pos < p0 || pos >= p1 || ids != 1 || id != seq) {
			return s, fmt.Errorf("a cell reads position %d, %d ids, first %d", pos, ids, id)
		}
	}
	if v := r.u32(); r.ok() && v != 0 {
		return s, errors.New("the values are stored transposed: flash attention is off")
	}
	layers := r.u32()
	if r.ok() && (layers == 0 || layers > maxLayers) {
		return s, fmt.Errorf("%d layers", layers)
	}
	for i, dst := range []*[]Tensor{&s.K, &s.V} {
		if i == 1 && r.ok() && len(r.b) == 0 {
			break // the last section may have no V
		}
		for i := uint32(0); i < layers && r.ok(); i++ {
			x := Tensor{Type: int32(r.u32()), Row: r.u64()}
			if r.ok() && (x.Row == 0 || x.Row > maxRow) {
				return s, fmt.Errorf("layer %d has a row of %d bytes", i, x.Row)
			}
			r.skip(x.Row * uint64(p1-p0))
			*dst = append(*dst, x)
		}
	}
	return s, nil
}

// reader takes fields off the front of b; after the first that is not there
// every field is 0 and ok is false.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) ok() bool { return !r.bad }

func (r *reader) skip(n uint64) {
	if n > math.MaxInt64 || uint64(len(r.b)) < n {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

func (r *reader) u32() uint32 {
	b := r.b
	if r.skip(4); r.bad {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (r *reader) u64() uint64 {
	b := r.b
	if r.skip(8); r.bad {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
