package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// window is a small sliding-window model: a base and a window section with
// different layers.
func window(t testing.TB) *Template {
	t.Helper()
	tmpl := &Template{Magic: 0xAF143CD8, Sections: []Section{
		{Streams: 1, K: []Tensor{{1, 16}, {8, 34}}, V: []Tensor{{1, 16}, {30, 8}}},
		{Streams: 1, K: []Tensor{{1, 24}}, V: []Tensor{{1, 24}}},
	}}
	if err := tmpl.Seal(); err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// blob returns a blob with random rows, and a mask that is true for row bytes.
func blob(t testing.TB, tmpl *Template, p0, p1, seq int32) (b []byte, rows []bool) {
	t.Helper()
	n := tmpl.Size(int(p1 - p0))
	one, two := bytes.Repeat([]byte{0xAA}, n), bytes.Repeat([]byte{0x55}, n)
	for _, x := range [][]byte{one, two} {
		if err := tmpl.Build(x, p0, p1, seq); err != nil {
			t.Fatal(err)
		}
	}
	rows = make([]bool, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range one {
		if one[i] != two[i] { // Build left it alone
			rows[i] = true
			one[i] = byte(r.Uint32())
		}
	}
	return one, rows
}

func TestATemplateIsLearnedFromOnesOwnBlob(t *testing.T) {
	want := window(t)
	b, rows := blob(t, want, 7, 12, 3)
	n := 0
	for _, r := range rows {
		if r {
			n++
		}
	}
	if n != 5*(16+34+16+8+24+24) {
		t.Fatalf("%d row bytes", n)
	}
	got, err := Learn(b, 7, 12, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got.Fingerprint() != want.Fingerprint() || got.Size(256) != want.Size(256) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for cut := range b {
		if _, err := Learn(b[:cut], 7, 12, 3); err == nil && cut != len(b) {
			// A cut exactly between two sections is a whole blob of one section, and
			// one behind a section's K is one of a model without V.
			first := want.Size(5) - sectionHead - 2*layerHead - 5*(cellSize+48)
			if cut != first && cut != first-2*layerHead-5*(16+8) && cut != want.Size(5)-layerHead-5*24 {
				t.Fatalf("learned from %d of %d bytes", cut, len(b))
			}
		}
	}
}

func TestAModelWithoutVIsLearnedToo(t *testing.T) {
	want := &Template{Magic: 7, Sections: []Section{{Streams: 1, K: []Tensor{{1, 192}, {8, 102}}}}}
	if err := want.Seal(); err != nil {
		t.Fatal(err)
	}
	b, _ := blob(t, want, 3, 9, 1)
	got, err := Learn(b, 3, 9, 1)
	if err != nil || got.Fingerprint() != want.Fingerprint() || len(b) != 8+16+2*12+6*(12+192+102) {
		t.Fatalf("%v, %+v, %d bytes", err, got, len(b))
	}
	if err := got.Normalise(b, 3, 9, 1); err != nil {
		t.Fatal(err)
	}
}

func TestEveryHeaderBitIsChecked(t *testing.T) {
	tmpl := window(t)
	b, rows := blob(t, tmpl, 256, 261, CanonicalSeq)
	if err := tmpl.Verify(b, 256, 261, CanonicalSeq); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			err := tmpl.Verify(b, 256, 261, CanonicalSeq)
			if rows[i] != (err == nil) {
				t.Fatalf("byte %d bit %d: row %v, error %v", i, bit, rows[i], err)
			}
			if err != nil && !errors.Is(err, ErrHeader) {
				t.Fatalf("%v does not wrap ErrHeader", err)
			}
			b[i] ^= 1 << bit
		}
	}
}

func TestABlobOfOtherPositionsOrLengthIsRefused(t *testing.T) {
	tmpl := window(t)
	b, _ := blob(t, tmpl, 256, 261, CanonicalSeq)
	for _, c := range []struct{ p0, p1 int32 }{{255, 260}, {256, 260}, {256, 262}, {257, 262}, {0, 5}, {-1, 4}, {5, 5}, {9, 4}, {-2147483648, 2147483647}} {
		if err := tmpl.Verify(b, c.p0, c.p1, CanonicalSeq); err == nil {
			t.Errorf("accepted as [%d, %d)", c.p0, c.p1)
		}
	}
	if tmpl.Verify(b[:len(b)-1], 256, 261, CanonicalSeq) == nil || tmpl.Verify(append(b, 0), 256, 261, CanonicalSeq) == nil {
		t.Error("accepted another length")
	}
	if tmpl.Verify(b, 256, 261, 1) == nil {
		t.Error("accepted another sequence id")
	}
}

func TestNormaliseSortsRowsOfAFragmentedCache(t *testing.T) {
	tmpl := window(t)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(rt, "n")
		p0 := int32(rapid.IntRange(0, 1000).Draw(rt, "p0"))
		want, _ := blob(t, tmpl, p0, p0+int32(n), CanonicalSeq)
		got, _ := blob(t, tmpl, p0, p0+int32(n), 9)
		off := blobHead
		for _, s := range tmpl.Sections {
			perm := rapid.Permutation(indices(n)).Draw(rt, "perm") // cell c holds position p0+perm[c]
			off += 8
			for c := range n {
				binary.LittleEndian.PutUint32(got[off+c*cellSize:], uint32(p0)+uint32(perm[c]))
			}
			off += n*cellSize + 8
			for _, x := range append(append([]Tensor(nil), s.K...), s.V...) {
				off += layerHead
				r := int(x.Row)
				for c := range n {
					copy(got[off+c*r:off+(c+1)*r], want[off+perm[c]*r:off+(perm[c]+1)*r])
				}
				off += n * r
			}
		}
		if err := tmpl.Normalise(got, p0, p0+int32(n), 9); err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			rt.Fatal("rows are not in the order of their positions")
		}
	})
}

func indices(n int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = i
	}
	return x
}

func TestVerifyDoesNotAllocate(t *testing.T) {
	tmpl := window(t)
	b, _ := blob(t, tmpl, 0, 256, CanonicalSeq)
	if n := testing.AllocsPerRun(100, func() { tmpl.Verify(b, 0, 256, CanonicalSeq) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// FuzzVerify plays a peer whose checksum is right and whose header is not: only
// the exact header may pass.
func FuzzVerify(f *testing.F) {
	tmpl := window(f)
	good, rows := blob(f, tmpl, 256, 259, CanonicalSeq)
	f.Add(good, int32(256), int32(259))
	huge := bytes.Clone(good)
	binary.LittleEndian.PutUint32(huge[12:], 1<<31-1) // the cell count that hung the library
	f.Add(huge, int32(256), int32(259))
	moved := bytes.Clone(good)
	binary.LittleEndian.PutUint32(moved[16:], 500) // the position the library took silently
	f.Add(moved, int32(256), int32(259))
	f.Add(good[:20], int32(0), int32(1<<31-1))
	f.Fuzz(func(t *testing.T, b []byte, p0, p1 int32) {
		id := ChunkID{Room: 1, Gen: 2, P0: p0, P1: p1, Layout: 3}
		sum := Checksum(id, b) // valid by construction: it must not help
		if tmpl.Verify(b, p0, p1, CanonicalSeq) != nil {
			return
		}
		if sum != Checksum(id, b) {
			t.Fatal("Verify wrote to the blob")
		}
		want := make([]byte, tmpl.Size(int(p1-p0)))
		copy(want, b)
		if err := tmpl.Build(want, p0, p1, CanonicalSeq); err != nil || !bytes.Equal(want, b) {
			t.Fatalf("accepted a header that is not the exact one (%v)", err)
		}
		if p0 == 256 && p1 == 259 {
			for i := range b {
				if !rows[i] && b[i] != good[i] {
					t.Fatalf("byte %d", i)
				}
			}
		}
	})
}

func BenchmarkVerify256(b *testing.B) {
	layers := make([]Tensor, 32)
	for i := range layers {
		layers[i] = Tensor{1, 2048}
	}
	tmpl := &Template{Magic: 1, Sections: []Section{{Streams: 1, K: layers, V: layers}}}
	if err := tmpl.Seal(); err != nil {
		b.Fatal(err)
	}
	x := make([]byte, tmpl.Size(256))
	tmpl.Build(x, 0, 256, CanonicalSeq)
	for b.Loop() {
		if tmpl.Verify(x, 0, 256, CanonicalSeq) != nil {
			b.Fatal()
		}
	}
}
