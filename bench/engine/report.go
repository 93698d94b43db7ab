package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/tandem-llm/tandem/bench/internal/stats"
)

// series is a test's values by system, one of each pair.
type series map[string][]float64

func (s series) add(system string, v float64) { s[system] = append(s[system], v) }

// row is one line of the report.
type row struct {
	Test   string `json:"test"`
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Higher bool   `json:"higher_is_better"`
	Pairs  int    `json:"pairs"`
	// Base is what the others are compared with: the first system that took part.
	Base   string             `json:"base"`
	Median map[string]float64 `json:"median"`
	// Better is how many times better than Base, above 1, or worse, below.
	Better map[string]stats.Interval `json:"times_better"`
	Aim    float64                   `json:"aim,omitempty"` // of Better, of the system AimOf
	AimOf  string                    `json:"aim_of,omitempty"`
	Placed string                    `json:"placed"`
}

// report is the result of one run.
type report struct {
	Model       string            `json:"model"`
	Threads     int               `json:"threads"`
	LlamaServer string            `json:"llama_server,omitempty"`
	Kernels     map[string]string `json:"cpu_kernels"`
	Rows        []row             `json:"rows"`
	Equal       map[string]*equal `json:"greedy_texts"`

	placed string // threads and CPUs of the systems that run now
}

// columns are the systems in the order of the tables.
var columns = []string{llamaServer, serve, pair}

func (r *report) add(x row, values series) {
	x.Median, x.Better, x.Placed = map[string]float64{}, map[string]stats.Interval{}, r.placed
	for _, c := range columns {
		v, ok := values[c]
		if !ok {
			continue
		}
		x.Median[c] = stats.Median(v)
		if x.Base == "" {
			x.Base, x.Pairs = c, len(v)
			continue
		}
		if ratios := stats.Ratios(values[x.Base], v); x.Higher {
			x.Better[c] = stats.Bootstrap(stats.Ratios(v, values[x.Base]))
		} else {
			x.Better[c] = stats.Bootstrap(ratios)
		}
	}
	r.Rows = append(r.Rows, x)
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Model %s, f16 KV, flash attention, %s/%s with %d CPUs.", r.Model, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if r.LlamaServer != "" {
		fmt.Fprintf(&b, " llama-server %s.", r.LlamaServer)
	}
	for _, name := range sorted(r.Kernels) {
		fmt.Fprintf(&b, " %s computes with %s.", name, r.Kernels[name])
	}
	b.WriteString("\nMedians; \"times better\" is the median of per-pair ratios with its 95 % bootstrap interval, above 1 if Tandem is better.\n")
	for i := 0; i < len(r.Rows); {
		n := i
		for n < len(r.Rows) && r.Rows[n].Test == r.Rows[i].Test && r.Rows[n].Placed == r.Rows[i].Placed {
			n++
		}
		table(&b, r.Rows[i:n])
		i = n
	}
	if len(r.Equal) > 0 {
		b.WriteString("\nGreedy texts of the same prompts, against those of the first column:\n\n")
	}
	for _, name := range sorted(r.Equal) {
		fmt.Fprintf(&b, "- %s: %s\n", name, r.Equal[name])
	}
	return b.String()
}

// table writes the rows of one test.
func table(b *strings.Builder, rows []row) {
	first := rows[0]
	fmt.Fprintf(b, "\n**%s**: %d interleaved pairs, %s.\n\n| |", first.Test, first.Pairs, first.Placed)
	shown := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { _, ok := first.Median[c]; return !ok })
	compared := shown[1:]
	for _, c := range shown {
		fmt.Fprintf(b, " %s |", c)
	}
	for _, c := range compared {
		fmt.Fprintf(b, " %s: times better than %s |", c, first.Base)
	}
	b.WriteString(" aim |\n|" + strings.Repeat("---|", len(shown)+len(compared)+2) + "\n")
	for _, x := range rows {
		fmt.Fprintf(b, "| %s |", x.Name)
		for _, c := range shown {
			fmt.Fprintf(b, " %s %s |", number(x.Median[c]), x.Unit)
		}
		for _, c := range compared {
			fmt.Fprintf(b, " %s |", x.Better[c])
		}
		b.WriteString(" " + x.aim() + " |\n")
	}
}

// aim says what was asked for and whether it was met. Where the interval holds the
// aim, this run does not say.
func (x row) aim() string {
	i, ok := x.Better[x.AimOf]
	if !ok || x.Base != llamaServer {
		return ""
	}
	met := "open"
	if i.Low >= x.Aim {
		met = "met"
	} else if i.High < x.Aim {
		met = "missed"
	}
	return fmt.Sprintf("%s ≥ %g: %s", x.AimOf, x.Aim, met)
}

func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func sorted[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
