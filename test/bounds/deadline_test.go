package bounds

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// mishap is one way in which a part of the fleet fails. It returns how to mend it.
type mishap struct {
	name string
	ends time.Duration // a request that it ends has ended so long after it; forDeadline: its deadline is all there is
	do   func(f *fleet) (mend func())
}

const (
	forDeadline = -1
	atOnce      = 0
	atFence     = 5 * time.Second
)

func healed(f *fleet) func() { return f.net.heal }

// mishaps are the failures of which the promise speaks.
func mishaps() []mishap {
	p, d := prefillIP+"1", decodeIP+"1"
	block := func(r route, w way) func(*fleet) func() {
		return func(f *fleet) func() { f.net.block(r, w); return healed(f) }
	}
	return []mishap{
		{"prefill silent", forDeadline, func(f *fleet) func() { return f.ps[0].steps.stick() }},
		{"decode silent", forDeadline, func(f *fleet) func() { return f.ds[0].steps.stick() }},
		{"control blocked to prefill", forDeadline, block(route{d, p, ctlPort}, out)},
		{"control blocked to decode", forDeadline, block(route{d, p, ctlPort}, back)},
		{"data blocked to prefill", forDeadline, block(route{d, p, dataPort}, out)},
		{"data blocked to decode", forDeadline, block(route{d, p, dataPort}, back)},
		{"data cut at once", forDeadline, cutAfter(0)},
		{"data cut inside a header", forDeadline, cutAfter(30)},
		{"data cut inside a chunk", forDeadline, cutAfter(1000)},
		{"data cut inside a later chunk", forDeadline, cutAfter(10_000)},
		{"data reset", forDeadline, func(f *fleet) func() { f.net.reset(route{d, p, dataPort}); return healed(f) }},
		{"control reset", forDeadline, func(f *fleet) func() { f.net.reset(route{d, p, ctlPort}); return healed(f) }},
		{"prefill dead", atOnce, func(f *fleet) func() { f.ps[0].kill(); return func() { f.ps[0].restart() } }},
		{"decode dead", atOnce, func(f *fleet) func() { f.ds[0].kill(); return func() { f.ds[0].restart() } }},
		{"prefill frozen", atFence, func(f *fleet) func() { f.ps[0].freeze(); return healed(f) }},
		{"decode frozen", atFence, func(f *fleet) func() { f.ds[0].freeze(); return healed(f) }},
		{"prefill leg in a black hole", atFence, func(f *fleet) func() { f.net.blackhole(route{routerIP, p, httpPort}); return healed(f) }},
		{"decode leg in a black hole", atFence, func(f *fleet) func() { f.net.blackhole(route{routerIP, d, httpPort}); return healed(f) }},
		{"registry in a black hole", forDeadline, func(f *fleet) func() { f.net.blackhole(route{d, p, bootPort}); return healed(f) }},
	}
}

func cutAfter(k int) func(*fleet) func() {
	return func(f *fleet) func() {
		f.net.cut(route{decodeIP + "1", prefillIP + "1", dataPort}, back, k)
		return healed(f)
	}
}

// moments are where the request is when the fault comes, as time after its start: the
// engine below computes its 200 tokens for 0.4 s, imports 12 chunks for 0.24 s, then
// makes a token every 20 ms.
var moments = []struct {
	name string
	at   time.Duration
}{
	{"before the request", -1},
	{"while prefill computes", 5 * time.Millisecond},
	{"while chunks travel", 300 * time.Millisecond},
	{"while it streams", time.Second},
}

func slowEngine() sim.Config {
	c := engineConfig()
	c.CallTime, c.TokenTime, c.ImportTime = 20*time.Millisecond, 2*time.Millisecond, 20*time.Millisecond
	return c
}

func TestEveryRequestHasOneEndingByItsDeadlineAndASecond(t *testing.T) {
	const deadline = 20 * time.Second
	for _, m := range mishaps() {
		for _, moment := range moments {
			t.Run(m.name+" "+moment.name, func(t *testing.T) {
				inBubble(t, options{sim: slowEngine()}, func(t *testing.T, f *fleet) {
					f.canary("before")
					f.quiesce("before")
					before := f.ends()
					var mend func()
					if moment.at < 0 {
						mend = m.do(f)
						synctest.Wait()
					}
					a := ask{prompt: text(200, 1), tokens: 100, deadline: deadline}
					got := f.begin(a)
					if moment.at >= 0 {
						pass(moment.at)
						mend = m.do(f)
					}
					r := <-got
					t.Logf("%v: %d %s, done %v, %v", r.took, r.status, r.code, r.done, r.err)
					if r.took > deadline+time.Second {
						t.Errorf("it ended after %v", r.took)
					}
					if bad := f.right(a, r); r.done && bad != "" {
						t.Errorf("it ended normally and is wrong: %s", bad)
					}
					synctest.Wait()
					live, ended := f.records()
					if len(live) > 0 || len(ended) != before+1 || ended[0].RID != r.rid && r.rid != "" || ended[0].Outcome == "" {
						t.Errorf("live %+v, ended %+v", live, ended[:len(ended)-before])
					}
					t.Logf("outcome %s %s by %s: %s (%d attempts)", ended[0].Outcome, ended[0].Code, ended[0].Who, ended[0].Detail, len(ended[0].Attempts))
					if after := r.took - max(moment.at, 0); !r.done && m.ends >= 0 && after > m.ends {
						t.Errorf("it ended %v after %s", after, m.name)
					}
					if ended[0].Code == "deadline" && r.took != deadline {
						t.Errorf("it ended by its deadline after %v", r.took)
					}
					mend()
					synctest.Wait()
					f.recover("afterwards")
				})
			})
		}
	}
}

// ends counts the requests that have ended.
func (f *fleet) ends() int {
	_, ended := f.records()
	return len(ended)
}

// recover demands, once everything is mended, every gauge at its baseline within 10 s
// and a right answer.
func (f *fleet) recover(what string) {
	f.t.Helper()
	f.until("quiet "+what, 10*time.Second, func() bool { return f.quiet() == "" })
	if h := f.quiet(); h != "" {
		f.t.Errorf("still held: %s", h)
	}
	f.until("a usable pair "+what, 10*time.Second, func() bool { return f.status("/health") == 200 })
	f.canary(what)
}

// status asks the router.
func (f *fleet) status(path string) int {
	f.t.Helper()
	return f.statusOf("http://" + routerIP + ":80" + path)
}

func (f *fleet) statusOf(url string) int {
	f.t.Helper()
	resp, err := f.admin.Get(url)
	if err != nil {
		f.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
