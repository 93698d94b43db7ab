package router

import (
	"testing"
	"time"
)

func usablePool(prefills, decodes int) *pool {
	p := &pool{}
	for range prefills {
		p.prefills = append(p.prefills, &worker{role: prefill, checked: true, ready: true, fixedPort: 1})
	}
	for range decodes {
		p.decodes = append(p.decodes, &worker{role: decode, checked: true, ready: true})
	}
	return p
}

func TestABurstIsSpreadBecauseSelectionCounts(t *testing.T) {
	p := usablePool(4, 2)
	for range 100 {
		if _, _, cause := p.pick(time.Now(), "", nil); cause != nil {
			t.Fatal(cause)
		}
	}
	for _, w := range p.prefills {
		if w.inFlight != 25 {
			t.Errorf("a prefill worker has %d of 100", w.inFlight)
		}
	}
	for _, w := range p.decodes {
		if w.inFlight != 50 {
			t.Errorf("a decode worker has %d of 100", w.inFlight)
		}
	}
}

func TestAPickAvoidsWorkersThatFailedTheRequestIfThereAreOthers(t *testing.T) {
	p := usablePool(3, 1)
	not := avoid{p.prefills[0]: blamed, p.decodes[0]: tried}
	for i := range p.prefills {
		p.prefills[i].inFlight = 10 * i // the failed one is the least loaded
	}
	for range 5 {
		got, _, cause := p.pick(time.Now(), "", not)
		if cause != nil || got.prefill == p.prefills[0] || got.decode != p.decodes[0] {
			t.Fatalf("picked %p %p, %v", got.prefill, got.decode, cause)
		}
	}
}

func TestABreakerLetsOneTrialThroughAndDoublesItsPause(t *testing.T) {
	var b breaker
	now := time.Now()
	for range breakerFailures {
		if !b.allows(now) {
			t.Fatal("it opened early")
		}
		b.took()
		b.failure(now, nil)
	}
	for want := breakerFirst; want < 4*breakerMost; want = 2 * want {
		pause := min(want, breakerMost)
		if b.allows(now.Add(pause - 1)) {
			t.Errorf("it let a request through before %v", pause)
		}
		now = now.Add(pause)
		if !b.allows(now) || b.state(now) != "half_open" {
			t.Errorf("no trial after %v", pause)
		}
		b.took()
		if b.allows(now) {
			t.Error("a second trial")
		}
		b.neutral() // the trial's client left: that says nothing
		if !b.allows(now) {
			t.Error("the trial was not given back")
		}
		b.took()
		b.failure(now, nil)
	}
	b.success()
	if !b.allows(now) || b.state(now) != "closed" {
		t.Error("one success did not close it")
	}
}
