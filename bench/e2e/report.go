package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// report is the result of one run.
type report struct {
	Model    string `json:"model"`
	Threads  string `json:"threads_each"`
	Prompt   int    `json:"prompt_tokens"`
	Generate int    `json:"generated_tokens"`
	Pairs    int    `json:"pairs"`

	ServeTTFT float64  `json:"serve_ttft_ms"`
	PDTTFT    float64  `json:"pd_ttft_ms"`
	TTFTRatio interval `json:"ttft_pd_over_serve"`
	ServeITL  float64  `json:"serve_itl_ms"`
	PDITL     float64  `json:"pd_itl_ms"`
	ITLRatio  interval `json:"itl_pd_over_serve"`
	Tail      float64  `json:"uncovered_tail_ms"`
	TailMax   float64  `json:"uncovered_tail_max_ms"`

	serve, pd []sample
	tails     []time.Duration
}

// interval is a median of per-pair ratios with its 95 % bootstrap interval.
type interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func (r *report) compute() {
	r.Pairs = len(r.pd)
	var st, pt, si, pi, tr, ir, tails []float64
	for i := range r.pd {
		a, b := ms(r.serve[i].ttft), ms(r.pd[i].ttft)
		st, pt, tr = append(st, a), append(pt, b), append(tr, b/a)
		x, y := median(millis(r.serve[i].itl)), median(millis(r.pd[i].itl))
		si, pi, ir = append(si, x), append(pi, y), append(ir, y/x)
		tails = append(tails, ms(r.tails[i]))
	}
	r.ServeTTFT, r.PDTTFT, r.TTFTRatio = median(st), median(pt), bootstrap(tr)
	r.ServeITL, r.PDITL, r.ITLRatio = median(si), median(pi), bootstrap(ir)
	r.Tail, r.TailMax = median(tails), slices.Max(tails)
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s, %d prompt tokens, %d generated, %s compute thread(s) per worker, %d interleaved pairs; medians\n\n",
		r.Model, r.Prompt, r.Generate, r.Threads, r.Pairs)
	fmt.Fprintf(&b, "| | tandem serve | prefill + decode | ratio (95 %% interval) |\n|---|---|---|---|\n")
	fmt.Fprintf(&b, "| TTFT | %.0f ms | %.0f ms | %s |\n", r.ServeTTFT, r.PDTTFT, r.TTFTRatio)
	fmt.Fprintf(&b, "| ITL, median of each stream | %.1f ms | %.1f ms | %s |\n", r.ServeITL, r.PDITL, r.ITLRatio)
	fmt.Fprintf(&b, "| uncovered tail | – | %.1f ms (max %.1f) | – |\n", r.Tail, r.TailMax)
	fmt.Fprintf(&b, "\nThe tail runs from prefill's last computed token to decode's first generated one; it holds the last chunk's transfer and\nimport, and the evaluation of the prompt's last token, which serve does, too.\n")
	return b.String()
}

func (i interval) String() string { return fmt.Sprintf("%.3f (%.3f–%.3f)", i.Median, i.Low, i.High) }

// bootstrap resamples the pairs 2,000 times, from a fixed seed.
func bootstrap(x []float64) interval {
	rng := rand.New(rand.NewPCG(1, 2))
	const rounds = 2000
	meds := make([]float64, rounds)
	pick := make([]float64, len(x))
	for i := range meds {
		for k := range pick {
			pick[k] = x[rng.IntN(len(x))]
		}
		meds[i] = median(pick)
	}
	slices.Sort(meds)
	return interval{median(x), meds[rounds*25/1000], meds[rounds*975/1000]}
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	y := slices.Clone(x)
	slices.Sort(y)
	if n := len(y); n%2 == 0 {
		return (y[n/2-1] + y[n/2]) / 2
	}
	return y[len(y)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func millis(ds []time.Duration) (out []float64) {
	for _, d := range ds {
		out = append(out, ms(d))
	}
	return out
}
