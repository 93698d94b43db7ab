//go:build unix

package e2e

import (
	"testing"
	"time"
)

// TestTheSamePromptsAgainGiveTheSameTexts asks a crowd's questions twice: the second
// time decode has most of the KV in its own cache, and only the rest travels. The
// legs of a pair come in any order, so that READY meets a room in every state.
func TestTheSamePromptsAgainGiveTheSameTexts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	for range 3 {
		f.askAll("again", 16, func(i int) question { return question{prompt: f.engine.prompt(600, i), tokens: 20} }).all(t)
	}
	b.held(time.Now(), freed)
	f.alive()
}
