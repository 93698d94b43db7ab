//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// full asks for the whole gauntlet; otherwise a part of it runs that fits beside the
// other tests.
var full = os.Getenv("TANDEM_GAUNTLET") != ""

// row is what a scenario did and saw, for the table at the end.
type row struct {
	scenario string
	requests int
	codes    map[string]int // of ended requests, by the router's records
	faults   map[string]int // frames that were met, by fault and point
	moments  map[string]int // what the scenario is about, and how often it came
	quiet    time.Duration  // the longest way back to the baseline
}

// table collects the rows of a run.
var table struct {
	sync.Mutex
	rows []row
}

func (r row) enter() {
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, r)
}

// printTable writes every scenario's row, and the sums.
func printTable(w io.Writer) {
	table.Lock()
	defer table.Unlock()
	slices.SortFunc(table.rows, func(a, b row) int { return cmp.Compare(a.scenario, b.scenario) })
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "scenario\trequests\toutcomes by cause\tframes met\tmoments seen\tquiet after")
	sum := row{scenario: "all", codes: map[string]int{}, faults: map[string]int{}}
	for _, r := range table.rows {
		fmt.Fprintf(out, "%s\t%d\t%s\t%d\t%s\t%v\n", strings.TrimPrefix(r.scenario, "Test"), r.requests, counts(r.codes), total(r.faults), counts(r.moments), r.quiet.Round(time.Millisecond))
		sum.requests += r.requests
		sum.quiet = max(sum.quiet, r.quiet)
		add(sum.codes, r.codes)
		add(sum.faults, byFault(r.faults))
	}
	fmt.Fprintf(out, "all\t%d\t%s\t%d\t\t%v\n", sum.requests, counts(sum.codes), total(sum.faults), sum.quiet.Round(time.Millisecond))
	fmt.Fprintf(out, "faults\t\t%s\n", counts(sum.faults))
}

func add(sum, m map[string]int) {
	for k, n := range m {
		sum[k] += n
	}
}

func total(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// byFault adds up the points of each fault.
func byFault(m map[string]int) map[string]int {
	out := map[string]int{}
	for k, n := range m {
		fault, _, _ := strings.Cut(k, " ")
		out[fault] += n
	}
	return out
}

// counts lists a map in its keys' order.
func counts(m map[string]int) string {
	words := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(words, ", ")
}
