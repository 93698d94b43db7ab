package sample

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPenaltiesCountWhatTheyShould(t *testing.T) {
	var c Counts
	for _, x := range []int32{0, 1, 1} {
		c.Prompt(x)
	}
	for _, x := range []int32{1, 2, 2, 99} { // 99 is no token of these logits
		c.Generated(x)
	}
	for _, x := range []struct {
		p    Penalties
		want []float32
	}{
		{Penalties{}, []float32{2, 2, -2, 2}},
		{Penalties{Repetition: 1}, []float32{2, 2, -2, 2}},
		{Penalties{Repetition: 2}, []float32{1, 1, -4, 2}},
		{Penalties{Presence: 1}, []float32{2, 1, -3, 2}},
		{Penalties{Frequency: 0.5}, []float32{2, 1.5, -3, 2}},
		{Penalties{Repetition: 2, Presence: 1, Frequency: 0.5}, []float32{1, -0.5, -6, 2}},
	} {
		logits := []float32{2, 2, -2, 2}
		c.Penalize(logits, x.p)
		if !slices.Equal(logits, x.want) {
			t.Errorf("%+v: %v, want %v", x.p, logits, x.want)
		}
	}
}

func TestBiasIsAddedAndForeignTokensAreIgnored(t *testing.T) {
	logits := []float32{1, 2}
	AddBias(logits, []Bias{{1, -5}, {7, 1}, {-1, 1}, {1, 1}})
	if !slices.Equal(logits, []float32{1, -2}) {
		t.Error(logits)
	}
}

func TestLogprobsAreTheSoftmaxBestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := make([]float32, rapid.IntRange(1, 40).Draw(t, "n"))
		sum := 0.0
		for i := range logits {
			logits[i] = float32(rapid.IntRange(-20, 20).Draw(t, "l")) / 4
			sum += math.Exp(float64(logits[i]))
		}
		at := int32(rapid.IntRange(0, len(logits)-1).Draw(t, "token"))
		top := rapid.IntRange(0, 25).Draw(t, "top")
		own, best := Logprobs(logits, at, top)
		near := func(token int32, got float32) {
			if want := float64(logits[token]) - math.Log(sum); math.Abs(want-float64(got)) > 1e-5 {
				t.Fatalf("token %d: %v, want %v", token, got, want)
			}
		}
		near(at, own)
		order := make([]int32, len(logits))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			if logits[a] > logits[b] {
				return -1
			} else if logits[a] < logits[b] {
				return 1
			}
			return 0
		})
		if len(best) != min(top, len(logits)) {
			t.Fatalf("%d of %d", len(best), top)
		}
		for i, b := range best {
			near(b.Token, b.Log)
			if b.Token != order[i] {
				t.Fatalf("place %d is %d, want %d", i, b.Token, order[i])
			}
		}
	})
}

func TestImpossibleTokensHaveNoProbability(t *testing.T) {
	own, best := Logprobs([]float32{nan, -inf, 3}, 0, 3)
	if own != -inf || len(best) != 1 || best[0] != (Logprob{2, 0}) {
		t.Error(own, best)
	}
	if own, best = Logprobs([]float32{nan}, 0, 2); own != -inf || best != nil {
		t.Error(own, best)
	}
}
