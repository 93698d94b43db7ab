package stats

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Interval is a median of per-pair ratios with its 95 % bootstrap interval.
type Interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func (i Interval) String() string { return fmt.Sprintf("%.3f (%.3f–%.3f)", i.Median, i.Low, i.High) }

// Bootstrap resamples the pairs 2,000 times, from a fixed seed.
func Bootstrap(x []float64) Interval {
	if len(x) == 0 {
		return Interval{}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const rounds = 2000
	meds := make([]float64, rounds)
	pick := make([]float64, len(x))
	for i := range meds {
		for k := range pick {
			pick[k] = x[rng.IntN(len(x))]
		}
		meds[i] = Median(pick)
	}
	slices.Sort(meds)
	return Interval{Median(x), meds[rounds*25/1000], meds[rounds*975/1000]}
}

// Ratios returns a[i] / b[i].
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// Median returns the middle, or the mean of both middles; 0 of nothing.
func Median(x []float64) float64 {
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

// Quantile returns the least value that is not below a share q of x; 0 of nothing.
func Quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	y := slices.Clone(x)
	slices.Sort(y)
	return y[min(int(q*float64(len(y))), len(y)-1)]
}

// Ms returns d in milliseconds.
func Ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Millis returns all of ds in milliseconds.
func Millis(ds []time.Duration) (out []float64) {
	for _, d := range ds {
		out = append(out, Ms(d))
	}
	return out
}
