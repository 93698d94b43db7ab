package sim

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
)

func backend(t *testing.T, c Config) *Backend {
	t.Helper()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheTokenizerLosesNothing(t *testing.T) {
	tok := backend(t, Config{}).Tokenizer()
	rapid.Check(t, func(t *rapid.T) {
		in := strings.Join(rapid.SliceOf(rapid.OneOf(
			rapid.String(), rapid.SampledFrom([]string{" w0123", " w9999", " w01", "\x00", "\xff", "<|im_start|>", "</s>"}),
		)).Draw(t, "text"), "")
		ids, err := tok.Encode(in, false, false)
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		for _, x := range ids {
			out = append(out, tok.Piece(x)...)
		}
		if string(out) != in {
			t.Fatalf("%q comes back as %q", in, out)
		}
	})
}

func TestControlTokensAreTokensOnlyWhenAsked(t *testing.T) {
	tok := backend(t, Config{}).Tokenizer()
	special, _ := tok.Encode("<|im_start|>user", true, true)
	if len(special) != 6 || special[0] != tokenBOS || special[1] != tokenStart || tok.Piece(special[1]) != nil {
		t.Fatalf("%v", special)
	}
	plain, _ := tok.Encode("<|im_start|>", false, false)
	if len(plain) != 12 {
		t.Fatalf("%v", plain)
	}
	if !tok.EndOfGeneration(tokenEOS) || !tok.EndOfGeneration(tokenEnd) || tok.EndOfGeneration(tokenBOS) {
		t.Fatal("end of generation")
	}
}

func TestItIsAsStrictAsTheLibrary(t *testing.T) {
	b := backend(t, Config{Cells: 4, Slots: 2, CacheSeqs: -1})
	ok := func(rows ...engine.Row) bool { return b.Compute(rows) == nil }
	if ok() || ok(engine.Row{Seq: 2}) || ok(engine.Row{Pos: 1}) || ok(engine.Row{Token: -1}) || ok(engine.Row{Token: 1 << 20}) {
		t.Fatal("accepted nonsense")
	}
	if !ok(engine.Row{Seq: 0, Pos: 0}, engine.Row{Seq: 0, Pos: 1}, engine.Row{Seq: 1, Pos: 0}, engine.Row{Seq: 1, Pos: 1}) {
		t.Fatal("refused what fits")
	}
	if ok(engine.Row{Seq: 0, Pos: 2}) {
		t.Fatal("more cells than there are")
	}
	b.Truncate(1, 1)
	if b.Used() != 3 || !ok(engine.Row{Seq: 0, Pos: 2}) {
		t.Fatal("a truncated cell is not free")
	}
	b.Drop(0)
	b.Drop(1)
	if b.Used() != 0 {
		t.Fatalf("%d cells used", b.Used())
	}
}

func TestOddRowSizesAreHandedOverToo(t *testing.T) {
	for _, size := range []int{1, 32, 33, 47, 64, 1000} {
		c := Config{KVBytesPerToken: size}
		a, b := backend(t, c), backend(t, c)
		prompt := []engine.Token{300, 301, 302, 303}
		var rows []engine.Row
		for i, x := range prompt[:3] {
			rows = append(rows, engine.Row{Token: x, Pos: int32(i)})
		}
		if err := a.Compute(rows); err != nil {
			t.Fatal(err)
		}
		one, two := make([]byte, a.ChunkBytes(3)), make([]byte, a.ChunkBytes(3))
		if _, err := a.Export(0, 0, 3, one); err != nil {
			t.Fatal(err)
		}
		if err := b.Import(5, 0, 3, one); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Export(5, 0, 3, two); err != nil || !bytes.Equal(one, two) {
			t.Fatalf("size %d: the same bytes did not come back (%v)", size, err)
		}
		if err := b.Compute([]engine.Row{{Seq: 5, Token: prompt[3], Pos: 3, Logits: true}}); err != nil {
			t.Fatal(err)
		}
		if got, want := best(b.Logits(0)), Expect(c, prompt, 1)[0]; got != want {
			t.Fatalf("size %d: %d, want %d", size, got, want)
		}
	}
}

// A chunk of another request behind the right first one does not link to it.
func TestAChunkOfAnotherRequestInTheMiddleIsCorrupt(t *testing.T) {
	b := backend(t, Config{})
	var blobs [2][]byte
	for s := range id.SeqID(2) {
		var rows []engine.Row
		for p := range int32(8) {
			rows = append(rows, engine.Row{Seq: s, Token: 300 + p*int32(s+1), Pos: p})
		}
		if err := b.Compute(rows); err != nil {
			t.Fatal(err)
		}
		blobs[s] = make([]byte, b.ChunkBytes(4))
	}
	if _, err := b.Export(0, 0, 4, blobs[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Export(1, 4, 8, blobs[1]); err != nil {
		t.Fatal(err)
	}
	if err := b.Import(2, 0, 4, blobs[0]); err != nil {
		t.Fatal(err)
	}
	if err := b.Import(2, 4, 8, blobs[1]); err != nil {
		t.Fatal(err)
	}
	if err := b.Compute([]engine.Row{{Seq: 2, Token: 300, Pos: 8, Logits: true}}); err != nil {
		t.Fatal(err)
	}
	if got := best(b.Logits(0)); got != Corrupt {
		t.Fatalf("token %d", got)
	}
}

func best(l []float32) engine.Token {
	at := 0
	for i := range l {
		if l[i] > l[at] {
			at = i
		}
	}
	return engine.Token(at)
}
