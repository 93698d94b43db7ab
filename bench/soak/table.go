package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// rows is how many the table has.
const rows = 12

// table is the whole run in Markdown.
func (j *journal) table() string {
	var b strings.Builder
	end := j.start
	if n := len(j.samples); n > 0 {
		end = j.samples[n-1].At
	}
	step := end.Sub(j.start)/rows + 1
	fmt.Fprintf(&b, "engine %s, %d prefill and %d decode workers, %.1f requests/s offered, seed %d, %v\n\n", j.c.engine, j.c.prefill, j.c.decode, j.rate, j.c.seed, end.Sub(j.start).Round(time.Second))
	fmt.Fprintln(&b, "| minute | requests | ok | left by client | failed beside a fault | TTFT p50, p99 ms | router MB | prefill MB, most | decode MB, most | goroutines, most | descriptors, most |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|---|---|---|---|")
	for from := j.start; from.Before(end); from = from.Add(step) {
		b.WriteString(j.row(from, from.Add(step)))
	}
	fmt.Fprintln(&b, "\n| fault | times | whole again after, median | most |")
	fmt.Fprintln(&b, "|---|---|---|---|")
	healed := map[string][]float64{}
	for _, h := range j.harms {
		if !h.Healed.IsZero() {
			healed[h.Name] = append(healed[h.Name], h.Healed.Sub(h.Began).Seconds())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(healed)) {
		fmt.Fprintf(&b, "| %s | %d | %.1f s | %.1f s |\n", name, len(healed[name]), quantile(healed[name], 0.5), quantile(healed[name], 1))
	}
	codes := map[string]int{}
	for _, e := range j.all {
		codes[e.code]++
	}
	fmt.Fprintf(&b, "\nEndings:")
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, " %s %d", code, codes[code])
	}
	fmt.Fprintln(&b)
	if len(j.wrong) == 0 {
		fmt.Fprintln(&b, "\nNothing was wrong: every request ended in time, every bad ending lies beside a fault, gauges are back, nothing has grown.")
	}
	for _, w := range j.wrong {
		fmt.Fprintln(&b, "WRONG:", w)
	}
	return b.String()
}

func (j *journal) row(from, to time.Time) string {
	n, ok, left := 0, 0, 0
	var first []float64
	for _, e := range j.all {
		if e.at.Before(from) || !e.at.Before(to) {
			continue
		}
		n++
		switch e.code {
		case "ok":
			ok++
		case "left":
			left++
		}
		if e.first > 0 {
			first = append(first, float64(e.first)/1e6)
		}
	}
	most := map[string]float64{}
	for _, s := range j.samples {
		if s.At.Before(from) || !s.At.Before(to) {
			continue
		}
		for _, m := range s.Members {
			role, _, _ := strings.Cut(m.Name, " ")
			most[role] = max(most[role], float64(m.Resident)/(1<<20))
			most["goroutines"] = max(most["goroutines"], m.Goroutines)
			most["open"] = max(most["open"], m.Open)
		}
	}
	return fmt.Sprintf("| %.0f–%.0f | %d | %d | %d | %d | %.0f, %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n",
		from.Sub(j.start).Minutes(), to.Sub(j.start).Minutes(), n, ok, left, n-ok-left, quantile(first, 0.5), quantile(first, 0.99),
		most["router"], most["prefill"], most["decode"], most["goroutines"], most["open"])
}
