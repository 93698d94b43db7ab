//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/room"
)

// second starts another router over the same workers, with the same access log.
func (f *fleet) second() *process {
	f.t.Helper()
	port := freePort(f.t)
	p := &process{name: "second router", url: local(port), ready: "/health"}
	p.args = append(p.args, f.router.args...)
	for i, a := range p.args {
		if a == "--port" {
			p.args[i+1] = strconv.Itoa(port)
		}
	}
	p.start(f.t)
	return p
}

func TestGauntletAgentsAreKilledWithAllTheirClients(t *testing.T) {
	clients, silent := 400, 40
	if full {
		clients, silent = 10_000, 200
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < 2*uint64(clients) {
		t.Skipf("%d open files are allowed, %d clients need %d (ulimit -Hn)", files.Max, clients, 2*clients)
	}
	f := newFleet(t, stormy())
	routers := []*process{f.router}
	// A client costs its router three descriptors. Where they are short two routers
	// share the clients; the workers have the legs of all in either case.
	if full && files.Max < 4*uint64(clients) {
		routers = append(routers, f.second())
	}
	f.canary()
	b := f.rest(append(append([]*process{}, routers...), f.workers()...)...)
	failures := b.failures(t)

	const agentsEach = 2 // one for each core of a small machine
	var specs []agentSpec
	for r, p := range routers {
		for i := range agentsEach {
			n := clients / len(routers) / agentsEach
			specs = append(specs, agentSpec{Addr: vanish.Addr(p.url), Name: fmt.Sprintf("killed%d.%d", r, i), Clients: n,
				First: len(specs) * n, Prompt: 1200, Tokens: 300, Limit: 5 * time.Minute, Halves: 10})
		}
	}
	began := time.Now()
	agents := startAgents(t, specs...)
	untilEvery(t, time.Second, "the routers have nearly all of them", 2*time.Minute, func(ctx context.Context) error {
		now, err := watch.Scrape(ctx, watched(routers...))
		if err != nil {
			return err
		}
		n := 0.0
		for _, m := range now {
			n += m.Sum("tandem_router_in_flight")
		}
		if n < 0.9*float64(clients) {
			return fmt.Errorf("%g in flight", n)
		}
		return nil
	})
	opened := time.Since(began)
	phases := f.awaitPhases(clients, 1)

	killed := time.Now()
	window := killAll(t, agents)
	b.held(killed, slowStep(4)+freed+storming(clients))
	took := time.Since(killed)
	next := f.canary()
	t.Logf("%d clients, opened in %v, vanished within %v with %v; memory back after %v; the next answer took %v",
		clients, opened.Round(time.Millisecond), window.Round(time.Microsecond), phases, took.Round(time.Millisecond), next.Round(time.Millisecond))
	f.moments[fmt.Sprintf("%d clients gone within %v", clients, window.Round(time.Millisecond))]++
	for phase, n := range phases {
		f.moments[string(phase)] += n
	}
	if next > slowStep(4)+freed {
		t.Errorf("the next request took %v", next)
	}
	halves := 0
	for _, a := range agents {
		halves += a.halves()
		f.ends(a.Name+"-", a.Clients-a.halves(), room.ClientGone, room.Done) // some were served before
	}
	f.moments["half a body"] = f.unlabelled(halves)
	for process, n := range b.failures(t) {
		if n != failures[process] {
			t.Errorf("%s counts %g failures, %g before: an abort is none", process, n, failures[process])
		}
	}
	b.settled(killed)
	f.quiet = max(f.quiet, time.Since(killed))

	// Silence: the kernel goes on acknowledging for a process that is stopped.
	const limit = 6 * time.Second
	quiet := startAgents(t, agentSpec{Addr: vanish.Addr(f.router.url), Name: "silent", Clients: silent, First: clients, Prompt: 600, Tokens: 2800, Limit: limit, Deaf: true})
	stopped := time.Now()
	if err := quiet[0].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.held(stopped, limit+slack+slowStep(4)+freed)
	f.ends("silent-", silent, room.Deadline, room.ClientGone, room.Done)
	f.canary()
	killAll(t, quiet)
	f.alive()
	b.settled(time.Now())
}

// storming is how much more time a crowd's end may take than one client's: the router
// has a handler, two connections and two aborts to end for each, on two cores.
func storming(clients int) time.Duration { return time.Duration(clients) * 500 * time.Microsecond }

// unlabelled demands that n requests ended before their body was read, as gone, and
// returns how many did.
func (f *fleet) unlabelled(n int) (found int) {
	f.t.Helper()
	for _, r := range f.records() {
		if r.Label != "" {
			continue
		}
		found++
		if r.Code != string(room.ClientGone) || len(r.Attempts) > 0 {
			f.t.Errorf("half a body ended %s (%s) after %d attempts", r.Code, r.Detail, len(r.Attempts))
		}
	}
	if found != n {
		f.t.Errorf("%d requests with half a body ended, want %d", found, n)
	}
	return found
}
