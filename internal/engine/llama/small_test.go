package llama

import (
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
