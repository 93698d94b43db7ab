//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/router"
	"github.com/tandem-llm/tandem/test/fault"
)

// hour is a moment in a request's life at which a process is killed or frozen: a
// frame that is held while it happens. A point without a type is a request that
// generates.
type hour struct {
	name string
	fault.Point
}

func hours() []hour {
	return []hour{
		{"before the workers know each other", fault.Point{Plane: fault.Control, Dir: fault.ToPrefill, Type: "HELLO"}},
		{"READY is on its way", fault.Point{Plane: fault.Control, Dir: fault.ToPrefill, Type: "READY"}},
		{"a chunk is on its way", fault.Point{Plane: fault.Data, Dir: fault.ToDecode, Type: "CHUNK"}},
		{"COMMIT is on its way", fault.Point{Plane: fault.Control, Dir: fault.ToPrefill, Type: "COMMIT"}},
		{"decode generates", fault.Point{}},
	}
}

// blow is what a process suffers.
type blow struct {
	name   string
	strike func(f *fleet, p *process)
}

// frozenFor is above every clock that judges silence.
const frozenFor = 7 * time.Second

func blows() []blow {
	return []blow{
		{"killed", func(f *fleet, p *process) {
			p.kill(f.t)
			p.start(f.t)
		}},
		{"frozen for an instant", func(f *fleet, p *process) { f.freeze(p, time.Second) }},
		{"frozen", func(f *fleet, p *process) { f.freeze(p, frozenFor) }},
	}
}

// freeze stops a process for a time.
func (f *fleet) freeze(p *process, for_ time.Duration) {
	p.signal(f.t, syscall.SIGSTOP)
	thaw := time.NewTimer(for_) // the stimulus
	defer thaw.Stop()
	<-thaw.C
	p.signal(f.t, syscall.SIGCONT)
}

func TestGauntletEveryProcessIsKilledAndFrozenInEveryPhase(t *testing.T) {
	lanes := make(chan struct{}, 5) // fleets at once
	for n, h := range hours() {
		for m, how := range blows() {
			if !full && (m == 2 || (n+m+time.Now().YearDay())%5 > 0) { // death_test.go freezes for long
				continue
			}
			t.Run(h.name+", "+how.name, func(t *testing.T) {
				t.Parallel()
				lanes <- struct{}{}
				defer func() { <-lanes }()
				f := newFleet(t, spec{engine: quickSim, proxy: true, prefill: []string{"--slots", "4"}, decode: []string{"--slots", "8"}})
				b := f.baseline()
				for _, p := range f.all() {
					f.suffer(b, h, how, p)
				}
				b.settled(time.Now())
			})
		}
	}
}

// suffer leads requests to a moment, has a process suffer there, and demands that every
// client heard in time and that nothing is left.
func (f *fleet) suffer(b baseline, h hour, how blow, p *process) {
	t := f.t
	t.Helper()
	name := "suffer-" + p.name
	var held *fault.Injection
	tokens := 30
	if h.Type == "" {
		tokens = 3000
	} else {
		held = f.fault.Add(fault.Rule{Point: h.Point, Do: fault.Hold, Times: 1})
	}
	if h.Type == "HELLO" {
		f.fault.Sever(fault.Control)
		f.fault.Sever(fault.Data)
	}
	header := map[string]string{router.TimeoutHeader: strconv.Itoa(int((2 * frozenFor).Milliseconds()))}
	c := f.askAll(name, crowded, func(int) question {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.prompts++
		return question{prompt: f.engine.prompt(300, f.prompts), tokens: tokens, header: header}
	})
	if held != nil {
		await(t, held.Met(), h.name)
	} else {
		until(t, "decode generates", cellLimit, func(context.Context) error {
			if n := f.scrape()["decode"].Sum("sglang:num_running_reqs"); n == 0 {
				return fmt.Errorf("%g run", n)
			}
			return nil
		})
	}
	struck := time.Now()
	f.moment(p.name + " " + how.name)
	how.strike(f, p)
	f.fault.Heal()
	c.endure(struck, p == f.router)
	f.recover(recovered)
	b.held(time.Now(), freed+slack)
	f.mu.Lock()
	f.quiet = max(f.quiet, time.Since(struck))
	f.mu.Unlock()
	f.alive()
}

// endure demands of every answer what judge does, but that of a router that was killed
// no client hears, and that one which was frozen may be later by as long.
func (c *crowd) endure(since time.Time, router bool) {
	t := c.fleet.t
	t.Helper()
	c.asking.Wait()
	for i, a := range c.answers {
		if router && a.broken != nil {
			continue
		}
		if err := a.honest(c.fleet.known(c.questions[i])); err != nil {
			t.Errorf("%s: %v", c.questions[i].label, err)
		} else if took := a.ended.Sub(since); !a.done && took > frozenFor+told {
			t.Errorf("%s: the error came after %v: %v", c.questions[i].label, took, a)
		}
	}
}

func TestGauntletAPeerIsRestartedOnItsAddressAgainAndAgain(t *testing.T) {
	t.Parallel()
	times := 4
	if full {
		times = 50
	}
	f := newFleet(t, spec{engine: quickSim})
	b := f.baseline()
	began := time.Now()
	for i := range times {
		p := f.workers()[i%2]
		p.kill(t)
		p.start(t)
		f.recover(recovered)
		f.moment(p.name + " restarted")
	}
	t.Logf("%d restarts in %v", times, time.Since(began).Round(time.Millisecond))
	b.back(time.Now(), freed+slack)
	f.alive()
}

func TestGauntletARollingRestartFailsNoRequest(t *testing.T) {
	f := newFleet(t, spec{engine: simEngine{tokenTime: "20us", callTime: "1ms"}})
	// A second pair, and a router that knows both.
	boot := freePort(t)
	prefill := worker("prefill", freePort(t), f.engine.flags(t), "--bootstrap-port", strconv.Itoa(boot),
		"--control-port", strconv.Itoa(freePort(t)), "--data-port", strconv.Itoa(freePort(t)))
	decode := worker("decode", freePort(t), f.engine.flags(t))
	prefill.name, decode.name = "second prefill", "second decode"
	prefill.start(t)
	decode.start(t)
	f.router.kill(t)
	f.router.args = append(f.router.args, "--prefill", prefill.url+","+strconv.Itoa(boot), "--decode", decode.url)
	f.router.start(t)
	until(t, "the router uses both pairs", recovered, func(context.Context) error {
		if n := f.scrape()["router"].Sum("tandem_router_usable_pairs"); n != 4 {
			return fmt.Errorf("%g pairs are usable", n)
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan int, 1)
	go func() { served <- f.load(ctx) }() // demands that every answer is complete and right
	for range map[bool]int{false: 1, true: 5}[full] {
		for _, p := range []*process{f.prefill, f.decode, prefill, decode} {
			p.signal(t, syscall.SIGTERM)
			if code := p.await(t, drained); code != 0 {
				t.Errorf("%s ended with status %d, want 0", p.name, code)
			}
			p.start(t)
			until(t, "the router uses both pairs again", recovered, func(context.Context) error {
				if n := f.scrape()["router"].Sum("tandem_router_usable_pairs"); n != 4 {
					return fmt.Errorf("%g pairs are usable", n)
				}
				return nil
			})
			f.moment(p.name + " restarted")
		}
	}
	stop()
	n := <-served
	t.Logf("%d requests were served during it, none failed", n)
	for code, k := range f.ends("load-", n, "done") {
		if code != "done" {
			t.Errorf("%d requests ended %s", k, code)
		}
	}
	f.canary()
	f.idle(time.Now(), settle, append(f.all(), prefill, decode)...)
	f.alive()
}
