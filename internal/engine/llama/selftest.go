package llama

import (
	"fmt"
	"math"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/kv"
)

// SelfTest is what was found at load.
type SelfTest struct {
	Ran        bool    // false: skipped, or there is nothing to hand over
	Tokens     int     // positions handed over, in two chunks
	Difference float64 // largest difference in logits to the context that computed the KV itself
}

// The probe: two chunks, so that the second is imported after other cells, and
// one token more whose logits are compared. Small, because a large model on a
// slow machine computes it at every start.
const (
	probeBorder = 16
	probeEnd    = 29
)

// maxDifference is the tolerance of the self-test. The same KV in other cells
// gives logits equal to six digits; wrong KV gives differences of whole units.
const maxDifference = 0.02

// learn finds the form of the model's state blobs and checks that handing one
// over changes nothing. Knowledge it cannot get is not an error: HandOver says
// why, and the model can still be served whole.
func (b *Backend) learn() error {
	if b.info.HandOver != "" {
		return nil
	}
	if b.info.Cells < probeEnd+1 {
		return fmt.Errorf("a context of %d cells is too small: use at least %d", b.info.Cells, probeEnd+1)
	}
	tokens := b.probeTokens()
	want, err := b.probeLast(tokens, true)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer b.Drop(0)
	size := int(0)
	for _, n := range []int{probeBorder, probeEnd} {
		size = max(size, b.rawSize(0, n))
	}
	// Two blobs of at most size bytes, and lease alignment.
	arena, err := kv.NewArena(kv.ArenaConfig{Bytes: 2*size + 4096})
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	defer arena.Close()
	if err := b.learnTemplate(arena, size); err != nil {
		b.template = nil
		b.info.HandOver = "the state's form is not one this version knows: " + err.Error()
		return nil
	}
	if b.c.SkipSelfTest {
		return nil
	}
	diff, err := b.tryHandOver(arena, tokens, want)
	b.selfTest = SelfTest{Ran: true, Tokens: probeEnd, Difference: diff}
	if err == nil && !(diff <= maxDifference) {
		err = fmt.Errorf("logits differ by %g after a hand-over, at most %g is right", diff, maxDifference)
	}
	if err != nil {
		b.template = nil
		b.info.HandOver = "the self-test failed: " + err.Error()
	}
	return nil
}

// probeTokens returns ordinary tokens: control tokens may be special to a model.
func (b *Backend) probeTokens() []engine.Token {
	var out []engine.Token
	if b.tok.addBOS {
		out = append(out, engine.Token(b.tok.bos))
	}
	for i := 0; len(out) <= probeEnd; i++ {
		t := engine.Token(i * 37 % b.info.Vocab)
		if len(b.tok.Piece(t)) > 0 || i > b.info.Vocab { // a vocabulary without text: take any
			out = append(out, t)
		}
	}
	return out
}

// probeLast computes the last token of the probe on sequence 0, with whole the
// tokens before it too, and returns a copy of its logits.
func (b *Backend) probeLast(tokens []engine.Token, whole bool) ([]float32, error) {
	cuts := [][2]int{{0, probeBorder}, {probeBorder, probeEnd}, {probeEnd, probeEnd + 1}}
	if !whole {
		cuts = cuts[2:]
	}
	for _, c := range cuts {
		for p := c[0]; p < c[1]; p += b.rows {
			var rows []engine.Row
			for q := p; q < min(c[1], p+b.rows); q++ {
				rows = append(rows, engine.Row{Token: tokens[q], Pos: int32(q), Logits: q == probeEnd})
			}
			if err := b.Compute(rows); err != nil {
				return nil, err
			}
		}
	}
	l := b.Logits(0)
	if l == nil {
		return nil, fmt.Errorf("no logits")
	}
	return append([]float32(nil), l...), nil
}

// rawSize asks the library for the size of a blob of sequence 0.
func (b *Backend) rawSize(p0, p1 int) int {
	spare := b.exportSpare()
	yzma.MemorySeqCp(b.mem, 0, spare, yzma.Pos(p0), yzma.Pos(p1))
	defer yzma.MemorySeqRm(b.mem, spare, -1, -1)
	return int(yzma.StateSeqGetSizeExt(b.ctx, spare, 0))
}

// learnTemplate learns from one blob of our own and checks it on another.
func (b *Backend) learnTemplate(arena *kv.Arena, size int) error {
	l, err := arena.Alloc(size, "self-test")
	if err != nil {
		return err
	}
	defer l.Release()
	n, err := b.exportRaw(0, 0, probeBorder, l.Bytes())
	if err != nil {
		return err
	}
	if b.template, err = kv.Learn(l.Bytes()[:n], 0, probeBorder, int32(b.exportSpare())); err != nil {
		return err
	}
	_, err = b.Export(0, probeBorder, probeEnd, l.Bytes())
	return err
}

// tryHandOver exports the probe in two chunks, drops it, imports it, and returns
// how far the last token's logits are from want.
func (b *Backend) tryHandOver(arena *kv.Arena, tokens []engine.Token, want []float32) (float64, error) {
	cuts := [][2]int32{{0, probeBorder}, {probeBorder, probeEnd}}
	b.Truncate(0, probeEnd)
	var blobs [][]byte
	for _, c := range cuts {
		l, err := arena.Alloc(b.template.Size(int(c[1]-c[0])), "self-test")
		if err != nil {
			return 0, err
		}
		defer l.Release()
		if _, err := b.Export(0, c[0], c[1], l.Bytes()); err != nil {
			return 0, err
		}
		blobs = append(blobs, l.Bytes())
	}
	b.Drop(0)
	for i, c := range cuts {
		if err := b.Import(0, c[0], c[1], blobs[i]); err != nil {
			return 0, err
		}
	}
	got, err := b.probeLast(tokens, false)
	if err != nil {
		return 0, err
	}
	return difference(want, got), nil
}

// difference returns the largest difference of two rows of logits; NaN if one of
// them has a NaN where the other has none.
func difference(a, b []float32) float64 {
	d := 0.0
	for i := range a {
		x := math.Abs(float64(a[i]) - float64(b[i]))
		if a[i] == b[i] {
			x = 0 // equal infinities
		}
		if math.IsNaN(x) {
			return x
		}
		d = max(d, x)
	}
	return d
}
