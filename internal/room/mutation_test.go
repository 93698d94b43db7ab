package room

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// mutateEnv names one cell, "side/state/event/n", whose n-th action is taken out
// (or, with n = "next", its transition) before this package's tests run.
const mutateEnv = "TANDEM_MUTATE"

// mutantTimeout is far beyond what the tests take: a mutant that needs it hangs.
const mutantTimeout = 20 * time.Second

func TestMain(m *testing.M) {
	if spec := os.Getenv(mutateEnv); spec != "" {
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

// mutants returns every cell with one action or its transition taken out. Cells
// that guards exclude, and actions that only count, are no guards.
func mutants() (all []mutant) {
	idle := map[action]bool{nothing: true, dropLate: true, dropForeign: true, dropTwice: true, dropUnknown: true, never: true, take: true}
	for _, side := range []Side{Prefill, Decode} {
		for _, s := range sideStates[side] {
			for _, e := range sideEvents[side] {
				c := tables[side][s][e]
				name := fmt.Sprintf("%s/%s/%s", side, s, e)
				if c.next != stay {
					all = append(all, mutant{name + "/next", side, s, e, cell{stay, c.do}})
				}
				for i, a := range c.do {
					if idle[a] {
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

// TestEveryMutantIsKilled takes each transition and each action out in turn and
// wants this package's other tests to fail. It runs itself once per mutant, so it
// is left to make mutate.
func TestEveryMutantIsKilled(t *testing.T) {
	if os.Getenv("TANDEM_MUTATION") == "" {
		t.Skip("takes minutes: make mutate")
	}
	var survivors []string
	all := mutants()
	for i, mu := range all {
		ctx, cancel := context.WithTimeout(t.Context(), mutantTimeout)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^Test[^N]", "-test.skip=Mutant|Document|Cell|Rule|Terminal|EveryLive", "-rapid.checks=400", "-rapid.nofailfile")
		cmd.Env = append(os.Environ(), mutateEnv+"="+mu.name, "TANDEM_MUTATION=")
		out, err := cmd.CombinedOutput()
		hung := ctx.Err() != nil // as without a transition that a timer drives: killed
		cancel()
		if err == nil {
			survivors = append(survivors, mu.name)
		} else if !hung && !strings.Contains(string(out), "FAIL") && !strings.Contains(string(out), "panic") {
			t.Fatalf("%s: the tests did not run: %v\n%s", mu.name, err, out)
		}
		if i%50 == 49 {
			t.Logf("%d of %d mutants, %d survive", i+1, len(all), len(survivors))
		}
	}
	t.Logf("%d mutants, %d killed", len(all), len(all)-len(survivors))
	for _, s := range survivors {
		t.Errorf("survives: %s", s)
	}
}
