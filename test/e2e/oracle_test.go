//go:build unix

package e2e

import (
	"strings"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// oracle is a simulator that never runs: it knows every right text.
var oracle = func() *sim.Backend {
	b, err := sim.New(sim.Config{})
	if err != nil {
		panic(err)
	}
	return b
}()

func (simEngine) expect(prompt []int, tokens int) string {
	ids := make([]engine.Token, len(prompt))
	for i, t := range prompt {
		ids[i] = engine.Token(t)
	}
	var text strings.Builder
	for _, t := range sim.Expect(sim.Config{}, ids, tokens) {
		text.Write(oracle.Tokenizer().Piece(t))
	}
	return text.String()
}
