package testmodel_test

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"
	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

var start sync.Once

// load loads the model of that kind into the real library, with a context of its
// own, until the test ends.
func load(t *testing.T, kind testmodel.Kind) (llama.Vocab, llama.Context) {
	t.Helper()
	dir := testmodel.Library(t)
	start.Do(func() {
		if err := llama.Load(dir); err != nil {
			t.Fatal(err)
		}
		llama.LogSet(llama.LogSilent())
		llama.Init()
	})
	path, err := testmodel.Path(kind)
	if err != nil {
		t.Fatal(err)
	}
	model, err := llama.ModelLoadFromFile(path, llama.ModelDefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { llama.ModelFree(model) })
	params := llama.ContextDefaultParams()
	params.NCtx, params.NBatch, params.NUbatch = 1024, 256, 256
	params.FlashAttentionType = llama.FlashAttentionTypeEnabled
	params.KVUnified = 1
	params.NThreads, params.NThreadsBatch = 1, 1
	ctx, err := llama.InitFromModel(model, params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { llama.Free(ctx) })
	return llama.ModelGetVocab(model), ctx
}

func onEachKind(t *testing.T, test func(t *testing.T, vocab llama.Vocab, ctx llama.Context)) {
	for _, kind := range testmodel.All() {
		t.Run(kind.String(), func(t *testing.T) {
			vocab, ctx := load(t, kind)
			test(t, vocab, ctx)
		})
	}
}

func TestTheRealLibraryKnowsItsSpecialTokens(t *testing.T) {
	onEachKind(t, func(t *testing.T, vocab llama.Vocab, _ llama.Context) {
		for name, id := range map[string]llama.Token{"bos": llama.VocabBOS(vocab), "eos": llama.VocabEOS(vocab), "eot": llama.VocabEOT(vocab)} {
			if id < 0 || !llama.VocabIsControl(vocab, id) {
				t.Errorf("%s is token %d", name, id)
			}
		}
		if !llama.VocabIsEOG(vocab, llama.VocabEOT(vocab)) || !llama.VocabIsEOG(vocab, llama.VocabEOS(vocab)) {
			t.Error("end of turn or of sequence does not end generation")
		}
		marker := "<|im_end|>"
		if len(llama.Tokenize(vocab, "<end_of_turn>", false, true)) == 1 {
			marker = "<end_of_turn>"
		}
		// With a space prefix, a marker at the start is preceded by that space's token.
		ids := llama.Tokenize(vocab, marker, false, true)
		if ids[len(ids)-1] != llama.VocabEOT(vocab) {
			t.Errorf("%q, parsed as special, is %v", marker, ids)
		}
		if ids := llama.Tokenize(vocab, marker, false, false); slices.Contains(ids, llama.VocabEOT(vocab)) {
			t.Errorf("%q, as text, holds the end of turn: %v", marker, ids)
		}
	})
}

func TestAnyTextComesBackFromItsTokens(t *testing.T) {
	onEachKind(t, func(t *testing.T, vocab llama.Vocab, _ llama.Context) {
		same := func(t interface{ Errorf(string, ...any) }, text string) {
			ids := llama.Tokenize(vocab, text, false, false)
			if got := llama.Detokenize(vocab, ids, false, true); got != text {
				t.Errorf("%q came back as %q through %v", text, got, ids)
			}
		}
		for _, text := range []string{"Hello the world", "  two  spaces ", "\n\ttabs\r\n", "naïve 日本語 🙂👩‍👩‍👧", `{"name": "x", "n": [1, 2]}`, "<s> </s> <0x41>"} {
			same(t, text)
		}
		rapid.Check(t, func(t *rapid.T) {
			// U+2581 is the vocabulary's own sign for a space; the binding cannot pass
			// a zero byte on.
			runes := rapid.Rune().Filter(func(r rune) bool { return r != 0 && r != '\u2581' && r != 0xfffd })
			same(t, rapid.StringOfN(runes, 1, 60, -1).Draw(t, "text"))
		})
	})
}

func TestDecodingIsNotDegenerate(t *testing.T) {
	onEachKind(t, func(t *testing.T, vocab llama.Vocab, ctx llama.Context) {
		n := int(llama.VocabNTokens(vocab))
		var chosen []llama.Token
		ids := llama.Tokenize(vocab, "The quick brown fox jumps over the lazy dog", true, false)
		for range 64 {
			logits := decode(t, ctx, ids, n)
			best, sd := argmax(logits), deviation(logits)
			if sd < 1 || sd > 10 {
				t.Fatalf("the logits' standard deviation is %v", sd)
			}
			if llama.VocabIsEOG(vocab, best) || llama.VocabIsControl(vocab, best) {
				t.Fatalf("greedy decoding chose special token %d", best)
			}
			chosen = append(chosen, best)
			ids = []llama.Token{best}
		}
		slices.Sort(chosen)
		if distinct := len(slices.Compact(chosen)); distinct < 16 {
			t.Errorf("64 positions have %d different argmaxes", distinct)
		}
	})
}

// A hand-over that loses or changes KV must show in the logits: here one token far
// back is changed.
func TestOneChangedTokenInTheContextShowsInTheLogits(t *testing.T) {
	onEachKind(t, func(t *testing.T, vocab llama.Vocab, ctx llama.Context) {
		n := int(llama.VocabNTokens(vocab))
		run := func(changed int) []float32 {
			mem, err := llama.GetMemory(ctx)
			if err != nil {
				t.Fatal(err)
			}
			llama.MemoryClear(mem, true)
			var logits []float32
			for from := 0; from < 768; from += 256 {
				ids := make([]llama.Token, 256)
				for i := range ids {
					ids[i] = llama.Token(300 + (from+i)*(from+i+7)%(n-300))
					if from+i == changed {
						ids[i] = 299
					}
				}
				logits = slices.Clone(decode(t, ctx, ids, n))
			}
			return logits
		}
		base := run(-1)
		if d := difference(base, run(-1)); d != 0 {
			t.Errorf("the same tokens differ by %v", d)
		}
		for _, position := range []int{0, 100, 400, 700, 766} {
			// 0.02 is what rounding and batch shapes explain at most.
			if d := difference(base, run(position)); d < 0.03 {
				t.Errorf("another token at %d changes the logits by only %v", position, d)
			}
		}
	})
}

func decode(t *testing.T, ctx llama.Context, ids []llama.Token, n int) []float32 {
	t.Helper()
	if rc, err := llama.Decode(ctx, llama.BatchGetOne(ids)); err != nil || rc != 0 {
		t.Fatalf("decode: %d, %v", rc, err)
	}
	logits, err := llama.GetLogitsIth(ctx, -1, n)
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

func argmax(x []float32) llama.Token {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return llama.Token(best)
}

func deviation(x []float32) float64 {
	var sum, square float64
	for _, v := range x {
		sum += float64(v)
		square += float64(v) * float64(v)
	}
	mean := sum / float64(len(x))
	return math.Sqrt(square/float64(len(x)) - mean*mean)
}

func difference(a, b []float32) float64 {
	var d float64
	for i := range a {
		d = max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}
