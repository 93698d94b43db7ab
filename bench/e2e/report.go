package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

// report is the result of one run.
type report struct {
	Model    string `json:"model"`
	Threads  int    `json:"threads_each"`
	Placed   string `json:"placed"`
	Prompt   int    `json:"prompt_tokens"`
	Generate int    `json:"generated_tokens"`
	Pairs    int    `json:"pairs"`

	ServeTTFT float64        `json:"serve_ttft_ms"`
	PDTTFT    float64        `json:"pd_ttft_ms"`
	TTFTRatio stats.Interval `json:"ttft_pd_over_serve"`
	ServeITL  float64        `json:"serve_itl_ms"`
	PDITL     float64        `json:"pd_itl_ms"`
	ITLRatio  stats.Interval `json:"itl_pd_over_serve"`
	Tail      float64        `json:"uncovered_tail_ms"`
	TailMax   float64        `json:"uncovered_tail_max_ms"`
	SameText  int            `json:"pairs_with_equal_text"`

	serve, pd []client.Sample
	tails     []time.Duration
}

func (r *report) compute() {
	r.Pairs = len(r.pd)
	var st, pt, si, pi, tails []float64
	for i := range r.pd {
		s, p := &r.serve[i], &r.pd[i]
		st, pt = append(st, stats.Ms(s.TTFT())), append(pt, stats.Ms(p.TTFT()))
		if r.Generate > 1 {
			si, pi = append(si, stats.Median(stats.Millis(s.Gaps()))), append(pi, stats.Median(stats.Millis(p.Gaps())))
		}
		tails = append(tails, stats.Ms(r.tails[i]))
		if s.Text == p.Text {
			r.SameText++
		}
	}
	r.ServeTTFT, r.PDTTFT, r.TTFTRatio = stats.Median(st), stats.Median(pt), stats.Bootstrap(stats.Ratios(pt, st))
	r.ServeITL, r.PDITL, r.ITLRatio = stats.Median(si), stats.Median(pi), stats.Bootstrap(stats.Ratios(pi, si))
	r.Tail, r.TailMax = stats.Median(tails), slices.Max(append(tails, 0))
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s, %d prompt tokens, %d generated, %d compute thread(s) per worker (%s), %d interleaved pairs, %d with equal text; medians\n\n",
		r.Model, r.Prompt, r.Generate, r.Threads, r.Placed, r.Pairs, r.SameText)
	fmt.Fprintf(&b, "| | tandem serve | prefill + decode | ratio (95 %% interval) |\n|---|---|---|---|\n")
	fmt.Fprintf(&b, "| TTFT | %.0f ms | %.0f ms | %s |\n", r.ServeTTFT, r.PDTTFT, r.TTFTRatio)
	if r.Generate > 1 {
		fmt.Fprintf(&b, "| ITL, median of each stream | %.1f ms | %.1f ms | %s |\n", r.ServeITL, r.PDITL, r.ITLRatio)
	}
	fmt.Fprintf(&b, "| uncovered tail | – | %.1f ms (max %.1f) | – |\n", r.Tail, r.TailMax)
	fmt.Fprintf(&b, "\nThe tail runs from prefill's last computed token to decode's first generated one; it holds the last chunk's transfer and\nimport, and the evaluation of the prompt's last token, which serve does, too.\n")
	return b.String()
}
