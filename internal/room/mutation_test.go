package room

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// mutateEnv names one mutant that this package's tests are to run with: a cell of
// the table, "side/state/event/action" (or "next", its transition), that is taken
// out; or, in an instrumented binary, one of the switches of instrument_test.go.
const mutateEnv = "TANDEM_MUTATE"

func TestMain(m *testing.M) {
	if spec := os.Getenv(mutateEnv); strings.Contains(spec, "/") {
		mutate(spec)
	}
	os.Exit(m.Run())
}

func mutate(spec string) {
	for _, mu := range mutants() {
		if mu.name == spec {
			tables[mu.side][mu.state][mu.event] = mu.cell
			return
		}
	}
	panic("no such mutant: " + spec)
}

type mutant struct {
	name  string
	side  Side
	state State
	event event
	cell  cell
}

// mutants returns every cell with one action or its transition taken out. A cell
// that does nothing, or that guards exclude, has nothing to be taken out.
func mutants() (all []mutant) {
	for _, side := range []Side{Prefill, Decode} {
		for _, s := range sideStates[side] {
			for _, e := range sideEvents[side] {
				c := tables[side][s][e]
				name := fmt.Sprintf("%s/%s/%s", side, s, e)
				if c.next != stay {
					all = append(all, mutant{name + "/next", side, s, e, cell{stay, c.do}})
				}
				for i, a := range c.do {
					if a == nothing || a == never {
						continue
					}
					without := append(append([]action{nothing}, c.do[:i]...), c.do[i+1:]...)
					all = append(all, mutant{fmt.Sprintf("%s/%s", name, actionNames[a]), side, s, e, cell{c.next, without}})
				}
			}
		}
	}
	return all
}

// trials are the tests that a mutant meets, the fastest first. Tests that only
// read the table would see the mutant itself, and count for nothing.
var trials = []struct {
	run, skip string
	short     bool
	within    time.Duration // far more than it takes: a mutant that needs it hangs
}{
	{"^Test", "Mutant|Document|Cell|ARule|Terminal|EveryLive|History|Explore", false, 20 * time.Second},
	{"^TestEverySmallHistoryHeals$", "^$", true, time.Minute},
	{"^TestEveryHistoryEndsEveryRoomOnce$", "^$", false, time.Minute},
	{"^TestEverySmallHistoryHeals$", "^$", false, 2 * time.Minute},
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (Test\w+)`)

// try runs the trials with a mutant, until one fails. It returns which, or "".
func try(t *testing.T, binary, name string) string {
	for _, tr := range trials {
		ctx, cancel := context.WithTimeout(t.Context(), tr.within)
		cmd := exec.CommandContext(ctx, binary, "-test.run="+tr.run, "-test.skip="+tr.skip, "-test.failfast",
			fmt.Sprintf("-test.short=%v", tr.short), "-rapid.checks=400", "-rapid.nofailfile")
		cmd.Env = append(os.Environ(), mutateEnv+"="+name, "TANDEM_MUTATION=", "GOMAXPROCS=1", "GOGC=400")
		out, err := cmd.CombinedOutput()
		hung := ctx.Err() != nil // as without a transition that a timer drives
		cancel()
		if err == nil {
			continue
		}
		if f := failed.FindSubmatch(out); f != nil {
			return string(f[1])
		}
		switch {
		case hung:
			return "hangs"
		case strings.Contains(string(out), "panic") || strings.Contains(string(out), "fatal error"):
			return "panics"
		}
		t.Errorf("%s: the tests did not run: %v\n%s", name, err, out)
		return "?"
	}
	return ""
}

// TestEveryMutantIsKilled takes every action and transition of the tables and
// every condition and statement of the guards out in turn, and wants the other
// tests to fail. What survives must be explained, in survivors_test.go. It takes
// minutes, so it is left to make mutate.
func TestEveryMutantIsKilled(t *testing.T) {
	if os.Getenv("TANDEM_MUTATION") == "" {
		t.Skip("takes minutes: make mutate")
	}
	binary := filepath.Join(t.TempDir(), "room.test")
	names, err := instrument(binary)
	if err != nil {
		t.Fatal(err)
	}
	cells := mutants()
	var all []string
	for _, mu := range cells {
		all = append(all, mu.name)
	}
	all = append(all, names...)
	if only := os.Getenv("TANDEM_MUTANTS"); only != "" {
		re := regexp.MustCompile(only)
		all = slices.DeleteFunc(all, func(n string) bool { return !re.MatchString(n) })
	}
	if by := try(t, binary, "none"); by != "" {
		t.Fatalf("%s fails without any mutant", by)
	}
	killed := make([]string, len(all))
	began := time.Now()
	var wg sync.WaitGroup
	work := make(chan int)
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range work {
				if killed[i] = try(t, binary, all[i]); killed[i] == "" {
					t.Logf("survives: %s", all[i])
				}
			}
		}()
	}
	for i := range all {
		if i%50 == 49 {
			t.Logf("%d of %d mutants after %v", i+1, len(all), time.Since(began).Round(time.Second))
		}
		work <- i
	}
	close(work)
	wg.Wait()
	report(t, began, len(cells), all, killed)
}

// report compares what survived with what is explained, and writes the document.
func report(t *testing.T, began time.Time, cells int, all, killed []string) {
	by := map[string]int{}
	for i, name := range all {
		by[killed[i]]++
		why, listed := survivors[name]
		switch {
		case killed[i] == "" && !listed:
			t.Errorf("survives, and nobody says why: %s", name)
		case killed[i] != "" && listed:
			t.Errorf("is killed by %s, and listed as a survivor (%s): %s", killed[i], why, name)
		}
		if killed[i] != "" {
			t.Logf("killed by %s: %s", killed[i], name)
		}
	}
	for name := range survivors {
		if !slices.Contains(all, name) && os.Getenv("TANDEM_MUTANTS") == "" {
			t.Errorf("is listed as a survivor, and there is no such mutant: %s", name)
		}
	}
	t.Logf("%d mutants, %d of them cells of the tables; %d survive; %v", len(all), cells, by[""], time.Since(began).Round(time.Second))
	if t.Failed() || os.Getenv("TANDEM_MUTANTS") != "" {
		return
	}
	if err := writeSection(proofPath, "mutants", mutationMarkdown(cells, all, by)); err != nil {
		t.Fatal(err)
	}
}
