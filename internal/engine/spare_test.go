package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// TestAWindowedPromptWaitsForWhatDecodeHasAQuarterOfASecondAtMost, each of several
// that wait: then it is computed whole.
func TestAWindowedPromptWaitsForWhatDecodeHasAQuarterOfASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := start(t, sim.Config{Window: 300}, engine.Config{})
		serve(t, l, prompt(500, 1), 1) // what is kept can go on at its end only
		var all []*recorder
		for range 3 {
			h := newRecorder()
			admit(t, l, &engine.Request{Tokens: prompt(520, 1)[:510], KV: engine.Compute, Export: true, Spared: engine.SparedUnknown}, h)
			all = append(all, h)
			time.Sleep(100 * time.Millisecond)
		}
		for i, h := range all {
			began := time.Now()
			res := h.wait(t)
			if most := 250*time.Millisecond - 200*time.Millisecond + time.Duration(i)*100*time.Millisecond; time.Since(began) > most {
				t.Errorf("the %d. started %v late", i, time.Since(began)-most)
			}
			if res.Finish != engine.FinishPrefilled || res.Cached != 0 {
				t.Errorf("%+v", res)
			}
		}
	})
}
