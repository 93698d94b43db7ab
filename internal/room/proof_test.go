package room

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// proofPath is the document that make explore and make mutate write their results to.
const proofPath = "../../docs/proof.md"

// writeSection replaces what stands between the marks of one section of a document.
func writeSection(path, name, text string) error {
	doc, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	head, rest, ok1 := strings.Cut(string(doc), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no section %q", path, name)
	}
	return os.WriteFile(path, []byte(head+begin+text+end+tail), 0o644)
}

// exploredMarkdown is the result of make explore.
func exploredMarkdown(all []result, took time.Duration) string {
	var w strings.Builder
	states, moves := int64(0), int64(0)
	w.WriteString("| scope | moves deep | distinct states | moves made | states healed | all there is |\n|---|---|---|---|---|---|\n")
	for _, r := range all {
		whole := "yes"
		if !r.Whole {
			whole = fmt.Sprintf("no, and %d states of the next level", r.Frontier)
		}
		fmt.Fprintf(&w, "| %s | %d | %d | %d | %d | %s |\n", r.Scope, r.Depth, r.States, r.Moves, r.Heal, whole)
		states, moves = states+r.States, moves+r.Moves
	}
	fmt.Fprintf(&w, "\n%d distinct states and %d moves in %v on %d cores of a shared machine, %s %s/%s. No law was broken.\n",
		states, moves, took.Round(time.Second), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return w.String()
}

// mutationMarkdown is the result of make mutate.
func mutationMarkdown(cells int, all []string, by map[string]int) string {
	var w strings.Builder
	n, survive := len(all), by[""]
	fmt.Fprintf(&w, "%d mutants: %d actions and transitions of the tables, %d conditions and statements. %d were killed, %d survive.\n", n, cells, n-cells, n-survive, survive)
	w.WriteString("\n| killed by | mutants |\n|---|---|\n")
	tests := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	for _, t := range tests {
		if t != "" {
			fmt.Fprintf(&w, "| %s | %d |\n", t, by[t])
		}
	}
	w.WriteString("\nThe survivors, each of which is the same program:\n\n| mutant | why nothing can tell it apart |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(survivors)) {
		fmt.Fprintf(&w, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", "\\|"), survivors[name])
	}
	return w.String()
}
