//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/test/fault"
)

// What the simulator cannot show is whether llama.cpp ever gets bytes that were
// tampered with: a changed payload or position would change the text of whoever has
// that KV, now or from the prefix cache.
func TestGauntletARealEngineNeverSeesAChunkThatWasTamperedWith(t *testing.T) {
	t.Parallel()
	f := newFleet(t, spec{engine: llamaEngine{testmodel.LlamaGQA}, proxy: true, prefill: []string{"--slots", "4"}, decode: []string{"--slots", "8"}})
	b := f.baseline()
	q := question{prompt: f.engine.prompt(300, 4712), tokens: 24, label: "witness"}
	before := ask(t.Context(), f.router.url, q)
	before.is(t, "")
	all := slices.DeleteFunc(trials(), func(x trial) bool {
		if !full && (x.do != fault.Flip || x.at != 72 && x.at != 60) {
			return true
		}
		return x.Type != "CHUNK" && x.Type != "COMMIT"
	})
	for k, x := range all {
		f.try(x, b, fmt.Sprintf("real%d", k))
		if t.Failed() {
			return
		}
		after := ask(t.Context(), f.router.url, q)
		after.is(t, before.text)
	}
	f.moments["texts compared"] = len(all)
	b.settled(time.Now())
}
