package sample

import "math"

// Logprob is the natural logarithm of a token's probability.
type Logprob struct {
	Token int32
	Log   float32
}

// Logprobs returns the log probability of one token, and of the top likeliest,
// best first, the lower index first among equals. They are the model's own: the
// softmax of all logits at temperature 1. NaN counts as impossible.
func Logprobs(logits []float32, token int32, top int) (own float32, best []Logprob) {
	if len(logits) == 0 || token < 0 || int(token) >= len(logits) {
		return float32(math.Inf(-1)), nil
	}
	most := logits[argmax(logits)]
	if !possible(most) {
		return float32(math.Inf(-1)), nil
	}
	most = finite(most)
	sum := 0.0
	if top = min(top, len(logits)); top > 0 {
		best = make([]Logprob, 0, top)
	}
	for i, l := range logits {
		if !possible(l) {
			continue
		}
		l = finite(l)
		sum += math.Exp(float64(l) - float64(most))
		if top == 0 || len(best) == top && l <= best[top-1].Log {
			continue
		}
		if len(best) < top {
			best = append(best, Logprob{})
		}
		j := len(best) - 1
		for ; j > 0 && best[j-1].Log < l; j-- {
			best[j] = best[j-1]
		}
		best[j] = Logprob{int32(i), l}
	}
	norm := float64(most) + math.Log(sum)
	for i := range best {
		best[i].Log = float32(float64(best[i].Log) - norm)
	}
	if !possible(logits[token]) {
		return float32(math.Inf(-1)), best
	}
	return float32(float64(finite(logits[token])) - norm), best
}
