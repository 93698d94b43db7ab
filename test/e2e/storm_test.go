//go:build unix

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

// freed is the promise: the time from a vanished client to free memory, on top
// of one engine step.
var freed = time.Second

// thousand is how many clients the large storm has.
var thousand = 1000

// storm is a crowd of clients that stream, and vanish at once.
type storm struct {
	name    string
	clients int
	prompt  int // tokens of each prompt
	tokens  int // asked for by each
	step    time.Duration
	decode  int  // wait for so many that decode
	rush    bool // the next request comes at once, before anything is free again
}

// rage raises a storm, and another if some phase had ended in the instant between
// the look and the kill: a storm counts only if it met every phase.
func (f *fleet) rage(b baseline, s storm) {
	f.t.Helper()
	const tries = 4
	var met []watch.Count
	for try := range tries {
		each := s
		each.name = fmt.Sprintf("%s.%d", s.name, try)
		phases := f.strike(b, each)
		if phases.Every() {
			return
		}
		met = append(met, phases)
	}
	f.t.Fatalf("%d storms met %v: none met every phase, so this was no test", tries, met)
}

// strike raises a crowd, waits until some are queued, some prefilling, some
// transferring and some decoding, kills it, and demands what issue and design
// promise. It returns how far the streams had come when they were ended. It guards
// against the failure that Tandem exists for: an abort storm after which nothing
// could be paired any more.
func (f *fleet) strike(b baseline, s storm) watch.Count {
	t := f.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failures := b.failures(t)
	aborted := f.outcomes("aborted")
	f.prompts += s.clients // no two alike: a prefix cache would leave nothing to do
	first := f.prompts
	crowd, err := vanish.OpenAll(ctx, vanish.Addr(f.router.url), "/v1/completions", s.clients, func(i int) []byte {
		return question{prompt: f.engine.prompt(s.prompt, first+i), tokens: s.tokens, label: fmt.Sprintf("%s-%d", s.name, i)}.body()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.Wait()
	defer crowd.Reset()
	before := f.awaitPhases(s.clients, s.decode)
	if off := f.scrape().Off(b.gauges); len(off) < 10 {
		t.Fatalf("under load only these gauges differ from the baseline: they do not show it: %v", off)
	}

	killed := time.Now()
	instant := crowd.Vanish()
	var took, next time.Duration
	if s.rush {
		next = f.canary()
		took = b.held(killed, s.step+freed+next).Sub(killed)
	} else {
		took = b.held(killed, s.step+freed).Sub(killed)
		next = f.canary()
	}
	if next > s.step+freed {
		t.Errorf("the next request took %v, a step is %v", next, s.step)
	}
	requests, phases := f.ended(s.name)
	t.Logf("%d clients vanished within %v: before %v; at their end %v; memory back after %v (a step is %v); the next answer took %v",
		s.clients, instant.Round(time.Millisecond), before, phases, took.Round(time.Millisecond), s.step, next.Round(time.Millisecond))
	if len(requests) != s.clients {
		t.Fatalf("the router remembers %d requests of %d", len(requests), s.clients)
	}
	for _, r := range requests {
		if r.Outcome != "aborted" || r.Code != "client_gone" {
			t.Errorf("request %s ended %s (%s: %s), want aborted", r.Label, r.Outcome, r.Code, r.Detail)
		}
	}
	if n := f.outcomes("aborted") - aborted; n != float64(s.clients) {
		t.Errorf("the router counts %g aborted requests, %d vanished", n, s.clients)
	}
	for process, n := range b.failures(t) {
		if n != failures[process] {
			t.Errorf("%s counts %g failures, %g before the storm: an abort is none", process, n, failures[process])
		}
	}
	if open := f.scrape().Breakers(); open != 0 {
		t.Errorf("a breaker is in state %g", open)
	}
	f.alive()
	return phases
}

// awaitPhases waits until every phase has some requests, decoding so many.
func (f *fleet) awaitPhases(clients, decoding int) (seen watch.Count) {
	f.t.Helper()
	pause := time.Duration(max(10, clients/10)) * time.Millisecond // the lists are long
	untilEvery(f.t, pause, "some requests in every phase", 30*time.Second, func(ctx context.Context) error {
		rooms, err := watch.Look(ctx, []string{f.prefill.url}, []string{f.decode.url}, 0)
		if err != nil {
			return err
		}
		if seen = rooms.Live(); !seen.Every() || seen[watch.Decoding] < decoding {
			return fmt.Errorf("%v of %d", seen, clients)
		}
		return nil
	})
	return seen
}

// ended returns the router's records of requests by their labels' beginning, and
// how far each had come when it was ended.
func (f *fleet) ended(prefix string) ([]watch.Request, watch.Count) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	const all = 4096 // what workers and router remember
	requests, err := watch.Requests(ctx, f.router.url, prefix+"-", all)
	if err != nil {
		f.t.Fatal(err)
	}
	rooms, err := watch.Look(ctx, []string{f.prefill.url}, []string{f.decode.url}, all)
	if err != nil {
		f.t.Fatal(err)
	}
	return requests, rooms.Of(watch.RoomsOf(requests))
}

func (f *fleet) scrape() watch.Snapshot {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	now, err := watch.Scrape(ctx, watched(f.all()...))
	if err != nil {
		f.t.Fatal(err)
	}
	return now
}

// outcomes is how many requests the router counts with an outcome.
func (f *fleet) outcomes(outcome string) float64 {
	f.t.Helper()
	return f.scrape()["router"].Sum("tandem_router_requests_total", `outcome="`+outcome+`"`)
}

// slowSim is a simulator on which a prompt of 1,200 tokens takes a quarter of a
// second, so that a crowd spreads over the phases.
var slowSim = simEngine{tokenTime: "200us", callTime: "2ms", chunk: 128, kvBytes: 256}

// slowStep is the longest call of a prefill worker with slowSim and these slots.
func slowStep(slots int) time.Duration {
	return 2*time.Millisecond + time.Duration(engine.DefaultMaxStep(slowSim.chunk, slots))*200*time.Microsecond
}

// stormy is a fleet in which a crowd finds every phase: four requests prefill at
// once, sixteen decode, and the others wait.
func stormy() spec {
	return spec{engine: slowSim,
		prefill: []string{"--slots", "4", "--context", "8192"},
		decode:  []string{"--slots", "16", "--context", "65536"}}
}

func TestSixtyStreamsThatVanishAtOnceLeaveNoTrace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	for i := range 4 {
		f.rage(b, storm{name: fmt.Sprintf("sixty%d", i), clients: 60, prompt: 1200, tokens: 2800, step: slowStep(4), decode: 1 + 3*i, rush: i%2 > 0})
	}
	b.settled(time.Now())
}

func TestAThousandStreamsThatVanishAtOnceLeaveNoTrace(t *testing.T) {
	// A client costs the router three descriptors. Go raises the soft limit by itself,
	// here and in the processes.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < 5*uint64(thousand) {
		t.Skipf("%d open files are allowed, a thousand clients need 5,000 (ulimit -Hn)", files.Max)
	}
	f := newFleet(t, stormy())
	b := f.baseline()
	for i := range 2 {
		f.rage(b, storm{name: fmt.Sprintf("thousand%d", i), clients: thousand, prompt: 1200, tokens: 2800, step: slowStep(4), decode: 1 + 5*i, rush: i > 0})
	}
	b.settled(time.Now())
}

func TestSixtyStreamsThatVanishAtOnceLeaveNoTraceOnARealEngine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, spec{engine: llamaEngine{testmodel.LlamaGQA},
		prefill: []string{"--slots", "4", "--context", "8192"},
		decode:  []string{"--slots", "8", "--context", "32768"}})
	b := f.baseline()
	for i := range 3 {
		f.rage(b, storm{name: fmt.Sprintf("real%d", i), clients: 60, prompt: 1000, tokens: 3000, step: engine.DefaultStepTarget, decode: 1 + i, rush: i%2 > 0})
	}
	b.settled(time.Now())
}
