package room

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scopes are the worlds that are explored: the first ones whole in every test
// run, the deep ones by make explore.
var scopes = []*scope{
	{name: "one room", rooms: 1, tokens: 6, window: 2 * chunkBytes, slots: 1, may: faults(1, 1), sum: 1},
	{name: "a chunk that decode has", rooms: 1, tokens: 10, have: 4, window: chunkBytes, slots: 1, may: faults(1, 1), sum: 1},
	{name: "an empty chunk", rooms: 1, tokens: 1, window: chunkBytes, slots: 1, may: faults(1, 1), sum: 1},
	{name: "two rooms, one slot", rooms: 2, tokens: 1, window: chunkBytes, slots: 1, may: faults(1, 1), sum: 1},
	{name: "one room, two faults", deep: true, rooms: 1, tokens: 6, window: 2 * chunkBytes, slots: 1, may: faults(2, 3), sum: 2},
	{name: "two rooms, one fault", deep: true, rooms: 2, tokens: 6, window: chunkBytes, slots: 1, may: faults(1, 1), sum: 1},
	{name: "two rooms, two faults", deep: true, rooms: 2, tokens: 6, window: chunkBytes, slots: 2, may: faults(2, 2), sum: 2},
}

// faults allows each fault n times and lets time pass so often.
func faults(n, ticks uint8) (may [numFaults]uint8) {
	for f := range may {
		may[f] = n
	}
	may[tick] = ticks
	return may
}

func scopeNamed(name string) *scope {
	for _, sc := range scopes {
		if sc.name == name {
			return sc
		}
	}
	return scopes[0]
}

// TestEverySmallHistoryHeals explores the small scopes, the first ones whole, and
// asks of every state whether it heals.
func TestEverySmallHistoryHeals(t *testing.T) {
	most := 40_000
	if raced || testing.Short() {
		most = 5_000
	}
	for _, sc := range scopes {
		if sc.deep {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			x := &explorer{sc: sc, workers: 1, maxSeen: most}
			x.run()
			if x.bad != nil {
				t.Fatal(x.history(x.bad))
			}
			if r := x.result(); r.States < 1000 {
				t.Errorf("only %d states were explored", r.States)
			}
		})
	}
}

// exploreEnv is for how many minutes TestEveryScopeIsExplored explores.
const exploreEnv = "EXPLORE_MINUTES"

// TestEveryScopeIsExplored is make explore: every scope, whole or for as long as
// there is time, with all cores.
func TestEveryScopeIsExplored(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv(exploreEnv), 64)
	if err != nil {
		t.Skip("takes minutes: make explore")
	}
	depth, _ := strconv.Atoi(os.Getenv("EXPLORE_DEPTH"))
	began := time.Now()
	until := began.Add(time.Duration(minutes * float64(time.Minute)))
	var results []result
	for _, sc := range scopes {
		x := &explorer{sc: sc, workers: runtime.GOMAXPROCS(0), until: until, maxDepth: depth, healAll: deepHeals}
		x.progress = func(r result) { fmt.Println(r) }
		x.run()
		if x.bad != nil {
			t.Fatal(x.history(x.bad))
		}
		results = append(results, x.result())
		runtime.GC()
	}
	if depth > 0 {
		return // of another bound than the document's
	}
	if err := writeSection(proofPath, "explored", exploredMarkdown(results, time.Since(began))); err != nil {
		t.Fatal(err)
	}
}

// TestAHistoryIsReplayed tells a history that the explorer printed. Without one it
// tells that of a hand-over.
func TestAHistoryIsReplayed(t *testing.T) {
	sc := scopeNamed(os.Getenv("SCOPE"))
	var ks []move
	if spec := os.Getenv("REPLAY"); spec != "" {
		for _, c := range strings.Split(spec, ".") {
			v, err := strconv.ParseUint(c, 36, 32)
			if err != nil {
				t.Fatal(err)
			}
			ks = append(ks, unpack(uint32(v)))
		}
	}
	t.Log(narrate(sc, ks))
}
