package llama

import (
	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
)

var _ engine.Namer = (*tokenizer)(nil)

// Name returns a token's text as the vocabulary has it, for tokens that add no
// text of their own.
func (t *tokenizer) Name(x engine.Token) string {
	if x < 0 || int(x) >= len(t.ends) {
		return ""
	}
	return yzma.VocabGetText(t.vocab, yzma.Token(x))
}
