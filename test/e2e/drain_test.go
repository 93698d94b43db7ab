//go:build unix

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

// drained bounds a drain in which a few short requests finish.
const drained = 15 * time.Second

// refusedBy is how late a request that a drain refuses may hear of it: a worker takes
// requests for a second after it has said that it leaves.
const refusedBy = 2 * time.Second

// awaitLive waits until so many requests are paired and not ended, and so many
// wait for decode's memory.
func (f *fleet) awaitLive(paired, queued int) {
	f.t.Helper()
	until(f.t, fmt.Sprintf("%d requests paired, %d queued", paired, queued), patience, func(ctx context.Context) error {
		rooms, err := watch.Look(ctx, []string{f.prefill.url}, []string{f.decode.url}, 0)
		if err != nil {
			return err
		}
		p, q := 0, 0
		for rm, d := range rooms.Decode {
			switch prefill := rooms.Prefill[rm].State(); {
			case d.State() == "Prealloc":
				q++
			case prefill == "WaitingForInput" || prefill == "Transferring" || d.State() == "Success":
				p++ // READY has reached prefill
			}
		}
		if p != paired || q != queued {
			return fmt.Errorf("%d and %d", p, q)
		}
		return nil
	})
}

func TestAPrefillThatIsToldToEndFinishesWhatDecodeWaitsFor(t *testing.T) {
	t.Parallel()
	s := stormy()
	s.decode = []string{"--slots", "8", "--context", "65536"}
	f := newFleet(t, s)
	b := f.baseline()
	c := f.askAll("drain", 12, f.long(200))
	f.awaitLive(8, 4)
	told := time.Now()
	f.prefill.signal(t, syscall.SIGTERM)
	if code := f.prefill.await(t, drained); code != 0 {
		t.Errorf("prefill ended with status %d, want 0", code)
	}
	took := time.Since(told)
	v := c.judge(told, refusedBy)
	t.Logf("prefill ended after %v: %v", took.Round(time.Millisecond), v)
	if v.complete < 8 {
		t.Errorf("%d requests were complete, decode waited for the KV of 8", v.complete)
	}
	f.prefill.start(t)
	t.Logf("served again after %v", f.recover(recovered))
	b.held(time.Now(), freed)
}

func TestADecodeThatIsToldToEndFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	s := stormy()
	s.decode = []string{"--slots", "8", "--context", "65536"}
	f := newFleet(t, s)
	b := f.baseline()
	c := f.askAll("drain", 12, f.long(200))
	f.awaitLive(8, 4)
	told := time.Now()
	f.decode.signal(t, syscall.SIGTERM)
	if code := f.decode.await(t, drained); code != 0 {
		t.Errorf("decode ended with status %d, want 0", code)
	}
	took := time.Since(told)
	v := c.judge(told, refusedBy)
	t.Logf("decode ended after %v: %v", took.Round(time.Millisecond), v)
	if v.complete < 8 || v.complete+v.refused != 12 {
		t.Errorf("want 8 or more complete and the others refused: %v", v)
	}
	f.decode.start(t)
	t.Logf("served again after %v", f.recover(recovered))
	b.held(time.Now(), freed)
}

func TestARouterThatIsToldToEndFinishesItsRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	f.canary()
	workers := f.rest(f.workers()...)
	c := f.askAll("drain", 8, f.long(200))
	f.awaitLive(8, 0)
	f.router.signal(t, syscall.SIGTERM)
	if code := f.router.await(t, drained); code != 0 {
		t.Errorf("the router ended with status %d, want 0", code)
	}
	c.all(t)
	workers.held(time.Now(), freed)
}
