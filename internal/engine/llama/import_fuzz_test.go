package llama

import (
	"bytes"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/kv"
)

// FuzzImport plays a peer whose checksum is right and whose blob is not, against
// the real library: it must neither hang nor take a position that is not the
// announced one, and what it takes must come out again bit for bit. The fuzzer's
// own limit on one input is what bounds the time.
func FuzzImport(f *testing.F) {
	b := load(f, testmodel.Gemma3, Config{SkipSelfTest: true, Context: 256})
	const n = 9
	tokens := prompt(b, n, 1)
	var rows []engine.Row
	for p := range int32(n) {
		rows = append(rows, engine.Row{Token: tokens[p], Pos: p})
	}
	if err := b.Compute(rows); err != nil {
		f.Fatal(err)
	}
	a := newArena(f, 8*b.ChunkBytes(n)+1<<16)
	good := lease(f, a, b.ChunkBytes(n))
	if _, err := b.Export(0, 0, n, good); err != nil {
		f.Fatal(err)
	}
	blob, again := lease(f, a, b.ChunkBytes(n)+4096), lease(f, a, b.ChunkBytes(n))
	// Edits are (offset, value) of three and one bytes: a whole blob is too large
	// for the fuzzer to find its header.
	edit := func(at int, v byte) []byte { return []byte{byte(at), byte(at >> 8), byte(at >> 16), v} }
	f.Add([]byte{}, int16(0), int32(0), int32(n))
	for _, at := range []int{0, 4, 8, 12, 15, 16, 20, 24, 12 + 4 + 12*n, 12 + 8 + 12*n} {
		f.Add(edit(at, 0xff), int16(0), int32(0), int32(n))
	}
	f.Add([]byte{}, int16(-1), int32(0), int32(n))
	f.Add([]byte{}, int16(0), int32(0), int32(1<<31-1))
	f.Fuzz(func(t *testing.T, edits []byte, longer int16, p0, p1 int32) {
		size := min(max(len(good)+int(longer)%2048, 0), len(blob))
		clear(blob)
		copy(blob, good)
		for ; len(edits) >= 4; edits = edits[4:] {
			at := int(edits[0]) | int(edits[1])<<8 | int(edits[2])<<16
			blob[at%max(size, 1)] = edits[3]
		}
		before := bytes.Clone(blob[:size])
		defer b.Drop(1)
		if err := b.Import(1, p0, p1, blob[:size]); err != nil {
			if b.lengths[1] != 0 || b.Kept(1) != 0 {
				t.Fatalf("a refused import left positions: %v", err)
			}
			return
		}
		if p0 != 0 || p1 != n || size != len(good) {
			t.Fatalf("%d bytes accepted as [%d, %d)", size, p0, p1)
		}
		if err := b.template.Verify(blob[:size], 0, n, kv.CanonicalSeq); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Export(1, 0, n, again); err != nil || !bytes.Equal(again, before) {
			t.Fatalf("what came in is not what goes out (%v)", err)
		}
	})
}
