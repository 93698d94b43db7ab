package router

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// A stream that had begun long before closed the breaker of a worker that failed all
// that was sent to it since.
func TestALateSuccessDoesNotCloseABreaker(t *testing.T) {
	var b breaker
	now := time.Now()
	early := b.took()
	for range breakerFailures {
		b.judge(b.took(), guilty, nil, now)
	}
	b.judge(early, good, nil, now)
	if b.allows(now) {
		t.Error("a request that was sent before it opened closed it")
	}
	now = now.Add(breakerFirst)
	trial := b.took()
	b.judge(early, neutral, nil, now)
	if b.allows(now) {
		t.Error("an earlier request gave the trial's place away")
	}
	b.judge(early, guilty, nil, now)
	if b.pause != breakerFirst {
		t.Errorf("an earlier request's failure made the pause %v", b.pause)
	}
	b.judge(trial, good, nil, now)
	if !b.allows(now) || b.state(now) != "closed" {
		t.Error("the trial's success did not close it")
	}
}

// The guard was there, and nobody called it.
func TestAWorkerThatIsRestartedIsUsedAtItsNextHealthCheckWhateverItFailedBefore(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		as := func(incarnation string) {
			g.ps[0].mu.Lock()
			g.ps[0].info = `{"role":"prefill","bootstrap_port":8998,"model":"m","incarnation":"` + incarnation + `"}`
			g.ps[0].mu.Unlock()
			time.Sleep(g.cfg.HealthInterval)
			synctest.Wait()
		}
		as("a")
		g.ps[0].set(fails(room.EngineFailed, "boom"))
		g.ds[0].set(hang)
		release := make(chan struct{})
		slow := make(chan answer, 1)
		for range breakerFailures {
			g.post(streamBody)
		}
		g.ps[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) { // of the old process, it fails late
			<-release
			fails(room.EngineFailed, "boom")(w, r, c)
		})
		if a := g.post(streamBody); a.code() != string(room.NoPair) {
			t.Errorf("the breaker did not open: %+v", a)
		}
		as("b")
		g.wg.Go(func() { slow <- g.post(streamBody) })
		synctest.Wait()
		as("c")
		close(release)
		<-slow
		g.wantUncharged()
		g.ps[0].set(prefilled)
		g.ds[0].set(streams(1, finishes))
		if a := g.post(streamBody); a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
}
