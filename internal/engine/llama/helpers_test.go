package llama

import (
	"log/slog"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// load returns a backend over a test model, closed at the test's end.
func load(t testing.TB, kind testmodel.Kind, c Config) *Backend {
	t.Helper()
	c.LibDir = testmodel.Library(t)
	path, err := testmodel.Path(kind)
	if err != nil {
		t.Fatal(err)
	}
	c.ModelPath = path
	if c.Context == 0 {
		c.Context = 1024
	}
	if c.Slots == 0 {
		c.Slots = 3
	}
	c.Log = slog.New(slog.DiscardHandler)
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func newArena(t testing.TB, bytes int) *kv.Arena {
	t.Helper()
	a, err := kv.NewArena(kv.ArenaConfig{Bytes: bytes, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func lease(t testing.TB, a *kv.Arena, n int) []byte {
	t.Helper()
	l, err := a.Alloc(n, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Release)
	return l.Bytes()
}

// prompt returns n ordinary tokens.
func prompt(b *Backend, n, salt int) []engine.Token {
	var out []engine.Token
	for i := 0; len(out) < n; i++ {
		t := engine.Token((i*37 + salt*101) % b.info.Vocab)
		if len(b.tok.Piece(t)) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// prefill computes [0, n−1) of tokens on s in the schedule of the step loop:
// pieces that end at chunk borders, never the last token.
func prefill(t testing.TB, b *Backend, s id.SeqID, tokens []engine.Token) {
	t.Helper()
	end := len(tokens) - 1
	for p := 0; p < end; {
		to := min((p/b.c.Chunk+1)*b.c.Chunk, end)
		rows := make([]engine.Row, 0, to-p)
		for ; p < to; p++ {
			rows = append(rows, engine.Row{Seq: s, Token: tokens[p], Pos: int32(p)})
		}
		if err := b.Compute(rows); err != nil {
			t.Fatal(err)
		}
	}
}

// generate computes the last prompt token and then n−1 more, greedily, and
// returns a copy of each step's logits.
func generate(t testing.TB, b *Backend, s id.SeqID, tokens []engine.Token, n int) (out []engine.Token, logits [][]float32) {
	t.Helper()
	x, pos := tokens[len(tokens)-1], int32(len(tokens)-1)
	for range n {
		if err := b.Compute([]engine.Row{{Seq: s, Token: x, Pos: pos, Logits: true}}); err != nil {
			t.Fatal(err)
		}
		l := append([]float32(nil), b.Logits(0)...)
		if len(l) != b.info.Vocab {
			t.Fatalf("%d logits, want %d", len(l), b.info.Vocab)
		}
		best := 0
		for i := range l {
			if l[i] > l[best] {
				best = i
			}
		}
		x = engine.Token(best)
		pos++
		out, logits = append(out, x), append(logits, l)
	}
	return out, logits
}

// borders returns the chunks of [0, end).
func borders(chunk, end int) (out [][2]int32) {
	for p := 0; p < end; p += chunk {
		out = append(out, [2]int32{int32(p), int32(min(p+chunk, end))})
	}
	return out
}
