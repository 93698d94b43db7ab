package sample

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var inf = float32(math.Inf(1))
var nan = float32(math.NaN())

func TestGreedyTakesTheLowestIndexAmongEquals(t *testing.T) {
	var s Sampler
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 3, 2}, 1},
		{[]float32{nan, -1, nan}, 1},
		{[]float32{-inf, -inf}, 0},
		{[]float32{0, inf, inf}, 1},
		{nil, 0},
	} {
		if got := s.Next(c.logits, Params{}, 1, 1); got != c.want {
			t.Errorf("%v gives %d, want %d", c.logits, got, c.want)
		}
	}
}

// Blocks and what is left over after them choose as one loop does.
func TestGreedyChoosesAlikeAtEveryLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.SampledFrom([]float32{nan, -inf, -2, 0, 1, 1.5, 2, inf}), 0, 70).Draw(t, "logits")
		want, best := int32(0), -inf
		for i, l := range logits {
			if l > best {
				want, best = int32(i), l
			}
		}
		if got := argmax(logits); got != want {
			t.Fatalf("%v gives %d, want %d", logits, got, want)
		}
	})
}

func TestTheStreamResumesAtAnyPosition(t *testing.T) {
	logits := make([]float32, 1000)
	p := Params{Temperature: 1, TopP: 0.95, TopK: 400}
	var one Sampler
	var whole []int32
	for pos := int32(0); pos < 200; pos++ {
		whole = append(whole, one.Next(logits, p, 42, pos))
	}
	var other Sampler
	for pos := int32(77); pos < 200; pos++ {
		if got := other.Next(logits, p, 42, pos); got != whole[pos] {
			t.Fatalf("position %d: %d, want %d", pos, got, whole[pos])
		}
	}
	slices.Sort(whole)
	if n := len(slices.Compact(whole)); n < 120 {
		t.Fatalf("only %d different tokens in 200", n)
	}
}

// reference is the specification, by a full sort.
func reference(logits []float32, p Params) (kept []int32, prob map[int32]float64) {
	for i, l := range logits {
		if possible(l) {
			kept = append(kept, int32(i))
		}
	}
	slices.SortStableFunc(kept, func(a, b int32) int {
		switch {
		case finite(logits[a]) > finite(logits[b]):
			return -1
		case finite(logits[a]) < finite(logits[b]):
			return 1
		}
		return 0
	})
	if p.TopK > 0 && p.TopK < len(kept) {
		kept = kept[:p.TopK]
	}
	sum := 0.0
	prob = map[int32]float64{}
	for _, k := range kept {
		prob[k] = math.Exp((float64(finite(logits[k])) - float64(finite(logits[kept[0]]))) / float64(p.Temperature))
		sum += prob[k]
	}
	if p.TopP > 0 && p.TopP < 1 {
		m := 0.0
		for i, k := range kept {
			if m += prob[k]; m >= sum*float64(p.TopP) {
				for _, x := range kept[i+1:] {
					delete(prob, x)
				}
				kept, sum = kept[:i+1], m
				break
			}
		}
	}
	if p.MinP > 0 {
		least := float64(p.MinP) * prob[kept[0]]
		for i, k := range kept {
			if i > 0 && prob[k] < least*(1-1e-9) {
				sum -= prob[k]
				delete(prob, k)
			}
		}
	}
	for k := range prob {
		prob[k] /= sum
	}
	return kept, prob
}

func TestOnlyTokensOfTheNucleusAreDrawnAndAsOftenAsTheyShould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "n")
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(rapid.IntRange(-40, 40).Draw(t, "l")) / 8
		}
		p := Params{
			Temperature: float32(rapid.IntRange(1, 30).Draw(t, "t")) / 10,
			TopP:        float32(rapid.IntRange(0, 20).Draw(t, "p")) / 20,
			TopK:        rapid.IntRange(0, n+1).Draw(t, "k"),
			MinP:        float32(rapid.SampledFrom([]float64{0, 0, 0.013, 0.21, 0.77}).Draw(t, "m")),
		}
		seed := rapid.Uint64().Draw(t, "seed")
		_, want := reference(logits, p)
		got := map[int32]float64{}
		const draws = 4000
		var s Sampler
		for pos := range int32(draws) {
			x := s.Next(logits, p, seed, pos)
			if _, ok := want[x]; !ok {
				// The nucleus's last member may differ by rounding only.
				t.Fatalf("%d is outside the nucleus %v", x, want)
			}
			got[x] += 1.0 / draws
		}
		for k, w := range want {
			if sd := math.Sqrt(w * (1 - w) / draws); math.Abs(got[k]-w) > 6*sd+1e-3 {
				t.Fatalf("token %d drawn %.4f, want %.4f", k, got[k], w)
			}
		}
	})
}

func TestNoLogitsMakeItPanicOrLeaveTheRange(t *testing.T) {
	odd := []float32{nan, inf, -inf, 0, 1, -1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.SampledFrom(odd), 1, 30).Draw(t, "logits")
		p := Params{
			Temperature: rapid.SampledFrom([]float32{0, 1, 1e-38, 1e38, inf, nan, -1}).Draw(t, "t"),
			TopP:        rapid.SampledFrom([]float32{0, 1, 0.5, 1e-30, nan, -1, inf}).Draw(t, "p"),
			TopK:        rapid.SampledFrom([]int{0, 1, 2, 1 << 30, -1}).Draw(t, "k"),
			MinP:        rapid.SampledFrom([]float32{0, 1, 0.5, 1e-30, nan, -1, inf}).Draw(t, "m"),
		}
		var s Sampler
		x := s.Next(logits, p, rapid.Uint64().Draw(t, "seed"), int32(rapid.IntRange(-5, 5).Draw(t, "pos")))
		if x < 0 || int(x) >= len(logits) {
			t.Fatalf("token %d of %d", x, len(logits))
		}
		if !possible(logits[x]) && slices.ContainsFunc(logits, possible) {
			t.Fatalf("chose an impossible token: %v", logits[x])
		}
	})
}

func TestNothingAllocatesOnceWarm(t *testing.T) {
	logits := make([]float32, 4096)
	for i := range logits {
		logits[i] = float32(i % 97)
	}
	var s Sampler
	for _, p := range []Params{{}, {Temperature: 1}, {Temperature: 0.8, TopP: 0.9, TopK: 40}, {Temperature: 1, MinP: 0.1}} {
		s.Next(logits, p, 1, 1)
		if n := testing.AllocsPerRun(50, func() { s.Next(logits, p, 1, 2) }); n != 0 {
			t.Errorf("%+v: %v allocations", p, n)
		}
	}
}

func BenchmarkTopP262k(b *testing.B) {
	logits := make([]float32, 262144)
	for i := range logits {
		logits[i] = float32(12 * Uniform(7, int32(i)))
	}
	var s Sampler
	for b.Loop() {
		s.Next(logits, Params{Temperature: 0.8, TopP: 0.95, TopK: 64}, 1, 2)
	}
}

func BenchmarkGreedy262k(b *testing.B) {
	logits := make([]float32, 262144)
	for i := range logits {
		logits[i] = float32(12 * Uniform(7, int32(i)))
	}
	var s Sampler
	for b.Loop() {
		s.Next(logits, Params{}, 1, 2)
	}
}
