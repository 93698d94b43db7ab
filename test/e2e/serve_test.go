//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/engine"
)

// TestServeLetsGoOfSixtyStreamsThatVanish is the storm for the baseline, which has
// no router and no hand-over: its phases are in its gauges.
func TestServeLetsGoOfSixtyStreamsThatVanish(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	p := worker("serve", port, slowSim.flags(t), "--slots", "16", "--context", "65536")
	p.start(t)
	f := &fleet{t: t, engine: slowSim, router: p} // clients speak to it directly
	f.canary()
	b := f.rest(p)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	crowd, err := vanish.OpenAll(ctx, vanish.Addr(p.url), "/v1/completions", 60, func(i int) []byte {
		return question{prompt: f.engine.prompt(1200, i), tokens: 2800, label: strconv.Itoa(i)}.body()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.Wait()
	defer crowd.Reset()
	until(t, "some queued, some prefilling, some decoding", patience, func(ctx context.Context) error {
		now, err := watch.Scrape(ctx, watched(p))
		m := now[p.name]
		queued, prefilling, decoding := m["sglang:num_decode_prealloc_queue_reqs"], m["sglang:num_queue_reqs"], m["sglang:num_running_reqs"]
		if err == nil && queued*prefilling*decoding == 0 {
			err = fmt.Errorf("%g, %g, %g", queued, prefilling, decoding)
		}
		return err
	})
	killed := time.Now()
	crowd.Vanish()
	step := 2*time.Millisecond + time.Duration(engine.DefaultMaxStep(slowSim.chunk, 16))*200*time.Microsecond
	took := b.held(killed, step+freed).Sub(killed)
	f.canary()
	t.Logf("memory back after %v (a step is %v)", took.Round(time.Millisecond), step)
	now, err := watch.Scrape(ctx, watched(p))
	if err != nil {
		t.Fatal(err)
	}
	if n := now[p.name].Sum("tandem_requests_total", `outcome="aborted"`); n != 60 {
		t.Errorf("%g requests are counted as aborted, 60 vanished", n)
	}
	if n := now.Failures()[p.name]; n != 0 {
		t.Errorf("%g failures are counted: an abort is none", n)
	}
	b.settled(killed)
}
