package llama

import (
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

// TestAContextSmallerThanABatchTakesAllItHasAndRefusesTheRest: the library ends the
// process when a batch has more rows than its context was asked to have cells.
func TestAContextSmallerThanABatchTakesAllItHasAndRefusesTheRest(t *testing.T) {
	for _, context := range []int{1, 31, 255} {
		b := load(t, testmodel.LlamaGQA, Config{Context: context})
		if b.Info().Cells != cellStep {
			t.Fatalf("a context of %d has %d cells, want %d", context, b.Info().Cells, cellStep)
		}
		rows := make([]engine.Row, cellStep)
		for i, tok := range prompt(b, len(rows), 1) {
			rows[i] = engine.Row{Seq: 0, Pos: int32(i), Token: tok}
		}
		if err := b.Compute(rows); err != nil {
			t.Fatalf("a context of %d cannot take %d rows: %v", context, len(rows), err)
		}
	}
}

// TestWithBF16TheLogitsDoNotDependOnWhichCellsAreFree is what deterministic rests on:
// the order in which attention adds does not show where it adds in 32 bits.
func TestWithBF16TheLogitsDoNotDependOnWhichCellsAreFree(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		b := load(t, kind, Config{KVType: "bf16"})
		tokens := prompt(b, 200, 1)
		prefill(t, b, 0, tokens)
		_, alone := generate(t, b, 0, tokens, 3)
		b.Drop(0)
		prefill(t, b, 1, prompt(b, 130, 2)) // takes the first cells
		prefill(t, b, 0, tokens)
		_, beside := generate(t, b, 0, tokens, 3)
		for i := range alone {
			if !slices.Equal(alone[i], beside[i]) {
				t.Errorf("%v: the logits of token %d depend on the cells", kind, i)
			}
		}
	}
}
