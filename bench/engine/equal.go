package main

import (
	"fmt"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

// equal counts greedy texts that are the same on two systems.
type equal struct {
	Texts int       `json:"texts"`
	Same  int       `json:"same"`
	Share float64   `json:"same_beginning"` // median over those that differ, of the text
	parts []float64 // of each that differs, the share before it does
}

// compare takes in the texts that systems made of the same prompts.
func (r *report) compare(what string, texts map[string][]client.Sample) {
	base := ""
	for _, c := range columns {
		out, ok := texts[c]
		switch {
		case !ok:
		case base == "":
			base = c
		default:
			e := r.Equal[what+", "+c]
			if e == nil {
				e = &equal{}
				r.Equal[what+", "+c] = e
			}
			for i := range out {
				e.add(texts[base][i].Text, out[i].Text)
			}
		}
	}
}

func (e *equal) add(a, b string) {
	e.Texts++
	if a == b {
		e.Same++
		return
	}
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	e.parts = append(e.parts, float64(n)/float64(max(len(a), len(b))))
	e.Share = stats.Median(e.parts)
}

func (e *equal) String() string {
	s := fmt.Sprintf("%d of %d equal", e.Same, e.Texts)
	if e.Same < e.Texts {
		s += fmt.Sprintf("; the others up to %.0f %% of the text (median)", 100*e.Share)
	}
	return s
}
