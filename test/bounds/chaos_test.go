package bounds

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Of a run of chaos.
const (
	chaosRuns     = 25 // without TANDEM_CHAOS_RUNS
	chaosRequests = 40
	chaosTime     = 20 * time.Second
	chaosDeadline = 10 * time.Second
)

// number reads one of the variables that choose a run.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func TestAfterAnyChaosEverythingHasEndedAndTheFleetServesAgain(t *testing.T) {
	first, runs := rand.Uint64()>>32, number(t, "TANDEM_CHAOS_RUNS", chaosRuns)
	if os.Getenv("TANDEM_CHAOS_SEED") != "" {
		first, runs = number(t, "TANDEM_CHAOS_SEED", 0), number(t, "TANDEM_CHAOS_RUNS", 1)
	}
	met := map[string]int{}
	for seed := first; seed < first+runs; seed++ {
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { chaos(t, seed, met) })
		if !ok {
			t.Logf("again: TANDEM_CHAOS_SEED=%d go test ./test/bounds -run AfterAnyChaos", seed)
		}
	}
	t.Logf("outcomes: %v", met)
	if runs >= chaosRuns { // or the chaos was none
		for _, outcome := range []string{"ok", "aborted", "peer_lost", "timeout", "rejected"} {
			if met[outcome] == 0 {
				t.Errorf("no request ended %s", outcome)
			}
		}
	}
}

// chaos is one run: a program of faults over requests, then health, rest and a canary.
func chaos(t *testing.T, seed uint64, met map[string]int) {
	c := engineConfig()
	c.TokenTime, c.ImportTime, c.CallTime = time.Millisecond, 2*time.Millisecond, 10*time.Millisecond
	inBubble(t, options{prefills: 2, decodes: 2, sim: c}, func(t *testing.T, f *fleet) {
		r := rand.New(rand.NewPCG(seed, 0))
		stop := f.began.Add(chaosTime)
		before := f.ends()
		type sent struct {
			ask
			got <-chan answer
		}
		var all []sent
		left := 0
		for n := 0; n < chaosRequests; n++ {
			a := ask{prompt: text(2+r.IntN(400), int(seed)%97*100+n), tokens: 1 + r.IntN(60), deadline: chaosDeadline, whole: r.IntN(4) == 0}
			if r.IntN(4) == 0 { // it leaves
				o := f.open(a)
				left++
				time.AfterFunc(time.Duration(r.Int64N(int64(3*time.Second))), func() { o.Conn.Close() })
			} else {
				all = append(all, sent{a, f.begin(a)})
			}
			if r.IntN(3) == 0 {
				f.mishap(r)
			}
			pass(time.Duration(r.Int64N(int64(chaosTime) / chaosRequests)))
		}
		pass(time.Until(stop))
		f.mend()
		for _, s := range all {
			a := <-s.got
			if a.took > chaosDeadline+time.Second {
				t.Errorf("%.20s… took %v: %d %s, %v", s.prompt, a.took, a.status, a.code, a.err)
			}
			if bad := f.right(s.ask, a); a.done && bad != "" {
				t.Errorf("%.20s… ended normally and is wrong: %s", s.prompt, bad)
			}
		}
		pass(3 * time.Second) // the last client has left
		f.until("quiet after chaos", 10*time.Second, func() bool { return f.quiet() == "" })
		live, ended := f.records()
		if got := len(ended) - before; len(live) > 0 || got != len(all)+left {
			t.Errorf("%d live and %d ended records of %d requests", len(live), got, len(all)+left)
		}
		for _, e := range ended {
			met[e.Outcome]++
		}
		for _, p := range f.all() { // the router's breakers may stay open for a minute
			if f.statusOf(p.url()+"/health") != 200 {
				t.Errorf("%s is not healthy", p.name())
			}
		}
		f.until("a usable pair", 70*time.Second, func() bool { return f.status("/health") == 200 })
		f.canary("after chaos")
	})
}

// mishap does one thing of chaos.
func (f *fleet) mishap(r *rand.Rand) {
	p, d := f.ps[r.IntN(len(f.ps))], f.ds[r.IntN(len(f.ds))]
	one := []*process{p, d}[r.IntN(2)]
	routes := []route{{d.addr, p.addr, ctlPort}, {d.addr, p.addr, dataPort}, {d.addr, p.addr, bootPort}, {routerIP, one.addr, httpPort}}
	x := routes[r.IntN(len(routes))]
	w := way(1 + r.IntN(3))
	switch r.IntN(9) {
	case 0:
		f.net.block(x, w)
	case 1:
		f.net.blackhole(x)
	case 2:
		f.net.slow(x, time.Duration(r.Int64N(int64(2*time.Second))))
	case 3:
		f.net.reset(x)
	case 4:
		f.net.cut(x, w, r.IntN(20_000))
	case 5:
		f.net.hold(x, w, r.IntN(20_000))
	case 6:
		one.freeze()
	case 7:
		one.kill()
		if r.IntN(2) == 0 {
			one.restart()
		}
	case 8:
		f.net.heal()
	}
}

// mend heals the network and starts what is dead.
func (f *fleet) mend() {
	f.net.heal()
	for _, p := range f.all() {
		p.mu.Lock()
		dead := p.dead
		p.mu.Unlock()
		if dead {
			p.restart()
		}
	}
	synctest.Wait()
}
