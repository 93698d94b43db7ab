package control

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// A worker that was restarted in good order left "session down err=rpc error…" and,
// five seconds later, "peer fenced" as warnings on the other.
func TestAPeerThatLeftInGoodOrderIsGoneAtOnceAndWithoutAlarm(t *testing.T) {
	for _, who := range []string{"prefill", "decode"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, p, d := pair(t)
				leaver, other := p, d
				if who == "decode" {
					leaver, other = d, p
				}
				leaver.BroadcastDrain()
				leaver.stop()
				pass(time.Millisecond)
				if h := other.heard(); !strings.Contains(h, "drain") || !strings.Contains(h, "fenced "+leaver.self.String()) {
					t.Errorf("the other heard %s", h)
				}
				pass(10 * time.Second)
				for _, alarm := range []string{"level=WARN", "session down", "peer fenced"} {
					for _, w := range []*worker{leaver, other} {
						if lines := w.logs(alarm); len(lines) > 0 {
							t.Errorf("logged: %q", lines)
						}
					}
				}
				other.stop()
			})
		})
	}
}

func TestAPeerThatDiesInItsDrainIsStillWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p, d := pair(t)
		p.BroadcastDrain()
		pass(time.Millisecond)
		m.freeze()
		m.cut()
		pass(time.Second)
		if h := d.heard(); strings.Contains(h, "fenced") {
			t.Errorf("a lost connection was taken for a goodbye: %s", h)
		}
		m.thaw()
		p.stop()
		d.stop()
	})
}

func TestANodeThatLeavesDoesNotWaitForAFrozenPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p, d := pair(t)
		p.BroadcastDrain()
		pass(time.Millisecond)
		m.deafen()
		began := time.Now()
		p.stop()
		if took := time.Since(began); took > 2*GoodbyeTimeout {
			t.Errorf("it took %v", took)
		}
		m.thaw()
		d.stop()
	})
}

// A wrong --advertise was invisible: the address was dialled again and again, and
// nobody was told.
func TestAnAddressThatCannotBeReachedIsToldAtOnceAndThenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemnet()
		d := start(t, m, 0xD, 7, nil)
		d.Dial("nowhere:1")
		pass(time.Millisecond)
		told := d.logs("level=WARN")
		if len(told) != 1 || !strings.Contains(told[0], "addr=nowhere:1") || !strings.Contains(told[0], "refused") || strings.Contains(told[0], "rpc error") {
			t.Fatalf("%q", told)
		}
		pass(100 * time.Second)
		if n := len(d.logs("level=WARN")); n < 3 || n > 4 {
			t.Errorf("it was told %d times in 100 s", n)
		}
		d.stop()
	})
}

// A decode worker that left with a COMMIT in its outbox cost prefill's drain 5 s.
func TestWhatIsQueuedWhenAWorkerLeavesComesBeforeItsGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p, d := pair(t)
		m.freeze()
		const n = 2000 // more than the connection's window takes
		for r := id.Room(1); r <= n; r++ {
			if err := d.Send(p.self, ready(r)); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		if _, bytes := d.remotes()[0].box.size(); bytes == 0 {
			t.Fatal("nothing is queued")
		}
		d.BroadcastDrain()
		m.thaw()
		began := time.Now()
		d.stop()
		if took := time.Since(began); took > GoodbyeTimeout {
			t.Errorf("it took %v", took)
		}
		if got := len(p.got()); got != n {
			t.Errorf("%d of %d messages came", got, n)
		}
		p.stop()
	})
}
