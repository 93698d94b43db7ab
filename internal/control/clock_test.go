package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// seen is when a state was told, after a moment.
func (w *worker) seen(s State, since time.Time) (at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.states {
		if e.s == s && !e.at.Before(since) {
			return e.at.Sub(since)
		}
	}
	return 0
}

// The two pingers' phases decide where between 4 and 5 s the fence is.
func TestAtEveryPhaseASilentPeerIsSuspectByThreeSecondsAndFencedExactlyTwoLater(t *testing.T) {
	var latest time.Duration
	for phase := time.Duration(0); phase < PingEvery; phase += 50 * time.Millisecond {
		for freeze := time.Millisecond; freeze < PingEvery; freeze += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				m := newMemnet()
				p := start(t, m, 0xA, 7, m.listen("prefill:1"))
				pass(phase)
				d := start(t, m, 0xD, 7, nil)
				d.Dial("prefill:1")
				pass(2*time.Second + freeze)
				m.freeze()
				froze := time.Now()
				pass(6 * time.Second)
				for _, w := range []*worker{p, d} {
					suspect, fenced := w.seen(Suspect, froze), w.seen(Fenced, froze)
					if suspect <= 2*time.Second || suspect > 3*time.Second || fenced != suspect+FenceAfter-SuspectAfter {
						t.Errorf("phase %v, frozen at %v: suspect after %v, fenced after %v", phase, freeze, suspect, fenced)
					}
					latest = max(latest, fenced)
				}
				p.stop()
				d.stop()
			})
		}
	}
	if latest <= 4900*time.Millisecond || latest > 5*time.Second {
		t.Errorf("the latest fence came after %v: the phases were not all tried", latest)
	}
}

// A process that got no CPU had fenced all its peers when it ran again.
func TestTheFenceOfASilentPeerComesLaterByExactlyOurOwnLag(t *testing.T) {
	const lag = 1700 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		m := newMemnet()
		a := start(t, m, 0xA, 7, m.listen("a:1"))
		b := start(t, m, 0xB, 7, m.listen("b:1"))
		d := start(t, m, 0xD, 7, nil)
		d.Dial("a:1")
		d.Dial("b:1")
		pass(2 * time.Second)
		d.mu.Lock()
		d.onState = func(p id.Incarnation, s State) {
			if p == a.self && s == Suspect {
				time.Sleep(lag) // on the pinger's goroutine: it does not run
			}
		}
		d.mu.Unlock()
		m.freeze()
		froze := time.Now()
		pass(8 * time.Second)
		suspect, fenced := d.seen(Suspect, froze), d.seen(Fenced, froze)
		if want := suspect + FenceAfter - SuspectAfter + lag; fenced != want {
			t.Errorf("suspect after %v and fenced after %v, with a lag of %v: want %v", suspect, fenced, lag, want)
		}
		if got := a.seen(Fenced, froze); got > 5*time.Second {
			t.Errorf("one that did not lag fenced after %v", got)
		}
		for _, w := range []*worker{a, b, d} {
			w.stop()
		}
	})
}

func TestAnAddressThatIsDownIsDialledWithDoublingJitteredPausesUpToTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemnet()
		d := start(t, m, 0xD, 7, nil)
		d.Dial("nowhere:1")
		pass(time.Minute)
		var at []time.Time
		m.mu.Lock()
		at = append(at, m.dials...)
		m.mu.Unlock()
		pause := MinRedial
		different := map[time.Duration]bool{}
		for i := 1; i < len(at); i++ {
			got := at[i].Sub(at[i-1])
			if got < pause/2 || got > pause {
				t.Errorf("pause %d is %v, want %v to %v", i, got, pause/2, pause)
			}
			if pause == MaxRedial {
				different[got] = true
			}
			pause = min(2*pause, MaxRedial)
		}
		if len(different) < 10 {
			t.Errorf("%d different pauses of %d: they are not jittered", len(different), len(at))
		}
		lis := m.listen("nowhere:1")
		back := time.Now()
		p := start(t, m, 0xA, 7, lis)
		pass(MaxRedial)
		if inc, up := d.At("nowhere:1"); !up || inc != p.self {
			t.Errorf("a peer that came back was not found within %v", time.Since(back))
		}
		p.stop()
		d.stop()
	})
}
