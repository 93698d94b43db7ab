//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

const (
	// told is how late a client may hear that a worker is lost: the fence and 1 s.
	told = 6 * time.Second
	// recovered is how long after a worker's return the next request may fail.
	recovered = 10 * time.Second
)

// recover asks canaries until one is answered right, and says how long that took.
func (f *fleet) recover(within time.Duration) time.Duration {
	f.t.Helper()
	began := time.Now()
	q := question{prompt: f.engine.prompt(40, 4711), tokens: canaryTokens, label: "recovery"}
	at := until(f.t, "a request is served again", within, func(ctx context.Context) error {
		a := ask(ctx, f.router.url, q)
		if err := a.honest(f.known(q)); err != nil {
			return fmt.Errorf("%w: %w", errHopeless, err)
		}
		if !a.done {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	return at.Sub(began)
}

func TestThePrefillIsKilledAndEveryClientHearsOfItInTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	c := f.askAll("killed", 24, f.long(300))
	phases := f.awaitPhases(24, 3)
	killed := time.Now()
	f.prefill.kill(t)
	v := c.judge(killed, told)
	t.Logf("killed with %v: %v", phases, v)
	if v.complete == 0 {
		t.Error("nothing was complete: decode had the KV of some and needed prefill no more")
	}
	if v.refused == 0 {
		t.Error("nothing was refused: prefill's death met no request that needed it")
	}
	f.prefill.start(t)
	t.Logf("served again after %v", f.recover(recovered))
	b.back(time.Now(), freed)
}

func TestTheDecodeIsKilledAndEveryClientHearsOfItInTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	c := f.askAll("killed", 24, f.long(2000))
	phases := f.awaitPhases(24, 3)
	killed := time.Now()
	f.decode.kill(t)
	v := c.judge(killed, told)
	t.Logf("killed with %v: %v", phases, v)
	if v.complete > 0 || v.refused == 0 || v.cut == 0 {
		t.Errorf("want errors only, some as a status and some in band: %v", v)
	}
	f.decode.start(t)
	t.Logf("served again after %v", f.recover(recovered))
	b.back(time.Now(), freed)
}

func TestThePrefillIsFrozenForEightSecondsAndAllIsWellAfterwards(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	c := f.askAll("frozen", 24, f.long(300))
	phases := f.awaitPhases(24, 3)
	frozen := time.Now()
	f.prefill.signal(t, syscall.SIGSTOP)
	thaw := time.NewTimer(8 * time.Second) // the stimulus
	defer thaw.Stop()

	suspected := until(t, "the router gives the prefill no new rooms", told, func(ctx context.Context) error {
		status, body, err := watch.Get(ctx, f.router.url+"/health")
		if err == nil && status != http.StatusServiceUnavailable {
			err = fmt.Errorf("/health says %d %s", status, body)
		}
		return err
	})
	v := c.judge(frozen, told)
	t.Logf("frozen with %v: suspect after %v: %v", phases, suspected.Sub(frozen).Round(time.Millisecond), v)
	if took := suspected.Sub(frozen); took > 3500*time.Millisecond {
		t.Errorf("suspect after %v, want within 3 s", took)
	}
	until(t, "decode fences the prefill", time.Until(frozen.Add(told)), func(ctx context.Context) error {
		_, body, err := watch.Get(ctx, f.decode.url+"/debug/peers")
		if err == nil && !strings.Contains(string(body), `"fenced"`) {
			err = fmt.Errorf("%s", body)
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ask(ctx, f.router.url, question{prompt: f.engine.prompt(10, 1), tokens: 1}).refusedWith(t, http.StatusServiceUnavailable, "no_pair")

	<-thaw.C
	f.prefill.signal(t, syscall.SIGCONT)
	t.Logf("served again after %v", f.recover(recovered))
	b.back(time.Now(), freed)
}

func TestTheDecodeIsFrozenForEightSecondsAndAllIsWellAfterwards(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	c := f.askAll("frozen", 24, f.long(2000))
	phases := f.awaitPhases(24, 3)
	frozen := time.Now()
	f.decode.signal(t, syscall.SIGSTOP)
	thaw := time.NewTimer(8 * time.Second) // the stimulus
	defer thaw.Stop()
	v := c.judge(frozen, told)
	t.Logf("frozen with %v: %v", phases, v)
	if v.complete > 0 || v.refused == 0 || v.cut == 0 {
		t.Errorf("want errors only, some as a status and some in band: %v", v)
	}
	f.idle(frozen, told+freed, f.prefill)
	<-thaw.C
	f.decode.signal(t, syscall.SIGCONT)
	t.Logf("served again after %v", f.recover(recovered))
	b.back(time.Now(), freed)
}

func TestTheRouterIsKilledAndTheWorkersLetGoOfItsRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	workers := f.rest(f.workers()...)
	f.askAll("orphan", 40, f.long(2000))
	phases := f.awaitPhases(40, 3)
	killed := time.Now()
	f.router.kill(t)
	took := workers.held(killed, slowStep(4)+freed).Sub(killed)
	t.Logf("killed with %v: the workers' memory was free after %v", phases, took.Round(time.Millisecond))
	f.router.start(t)
	f.canary()
	b.back(time.Now(), freed)
}
