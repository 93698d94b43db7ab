package sample

import (
	"math"
	"slices"
)

// Params says how to choose. The zero value is greedy.
type Params struct {
	Temperature float32 // ≤ 0 or NaN: greedy
	TopP        float32 // nucleus mass in (0, 1); anything else keeps all
	TopK        int     // candidates kept; ≤ 0 keeps all
	MinP        float32 // in (0, 1]: least probability kept, as a share of the likeliest's; anything else keeps all
}

// Sampler holds scratch memory only, no state. Not safe for concurrent use.
type Sampler struct {
	cand []candidate
}

type candidate struct {
	token int32
	logit float32
	p     float64 // softmax weight, not normalised
}

// Next chooses the token at position pos. Candidates are the TopK highest
// logits (lower index first among equals); softmax with Temperature; of these
// the smallest set whose mass reaches TopP; of these the ones MinP keeps; one of
// them by Uniform(seed, pos).
// NaN counts as impossible, +Inf as the largest finite logit. With no possible
// token, or no logits, it returns 0.
func (s *Sampler) Next(logits []float32, p Params, seed uint64, pos int32) int32 {
	best := argmax(logits)
	if !(p.Temperature > 0) || p.TopK == 1 {
		return best
	}
	if len(logits) == 0 || !possible(logits[best]) {
		return best
	}
	top := finite(logits[best])
	u := Uniform(seed, pos)
	nucleus := p.TopP > 0 && p.TopP < 1
	topK := p.TopK > 0 && p.TopK < len(logits)
	minP := p.MinP > 0 && p.MinP <= 1
	if !nucleus && !topK && !minP {
		return drawAll(logits, top, p.Temperature, u, best)
	}
	least := math.Inf(-1) // of the logits MinP keeps
	if minP {
		least = float64(top) + float64(p.Temperature)*math.Log(float64(p.MinP))
		if least != least { // an infinite temperature times log 1
			least = float64(top)
		}
	}
	s.cand = s.cand[:0]
	lowest := math.Nextafter32(float32(least), float32(math.Inf(-1)))
	if nucleus || topK {
		lowest = floor(logits, top, p, topK)
	}
	sum := 0.0
	for i, l := range logits {
		if !possible(l) {
			continue
		}
		if f := finite(l); f >= lowest {
			w := weight(l, top, p.Temperature)
			sum += w
			s.cand = append(s.cand, candidate{int32(i), f, w})
		} else if !topK { // TopP is then a share of all the mass
			sum += weight(l, top, p.Temperature)
		}
	}
	slices.SortFunc(s.cand, func(a, b candidate) int {
		switch {
		case a.logit > b.logit:
			return -1
		case a.logit < b.logit:
			return 1
		}
		return int(a.token - b.token)
	})
	if topK {
		s.cand = s.cand[:min(p.TopK, len(s.cand))]
		sum = 0 // TopP is a share of the mass that TopK left
		for _, c := range s.cand {
			sum += c.p
		}
	}
	if nucleus {
		mass := 0.0
		for i, c := range s.cand {
			if mass += c.p; mass >= sum*float64(p.TopP) {
				s.cand = s.cand[:i+1]
				break
			}
		}
	}
	n, mass := 0, 0.0
	for n < len(s.cand) && (n == 0 || float64(s.cand[n].logit) >= least) {
		mass += s.cand[n].p
		n++
	}
	return draw(s.cand[:n], mass*u)
}

// bins of floor's histogram: 1/8 of a unit of scaled logit each, so the last
// begins e^-32 below the top, where no float32 nucleus ends.
const (
	bins     = 256
	binWidth = 1.0 / 8
)

// floor returns a logit such that every token TopK (or without it TopP) may keep
// is at or above it, in one pass and without sorting the vocabulary.
func floor(logits []float32, top float32, p Params, topK bool) float32 {
	var count [bins]int
	var mass [bins]float64
	sum, perBin := 0.0, 1/(float64(p.Temperature)*binWidth)
	for _, l := range logits {
		if !possible(l) {
			continue
		}
		b := bins - 1
		if d := (float64(top) - float64(finite(l))) * perBin; d < bins-1 {
			b = int(d)
		}
		count[b]++
		if !topK { // counting needs no exponentials, and they are what takes time
			w := weight(l, top, p.Temperature)
			mass[b] += w
			sum += w
		}
	}
	n, m := 0, 0.0
	for b := range bins - 1 {
		n += count[b]
		m += mass[b]
		enough := n >= p.TopK
		if !topK {
			enough = m >= sum*float64(p.TopP)*(1+1e-9)
		}
		if enough {
			// One bin of slack covers the rounding of the division above.
			return float32(float64(top) - float64(b+2)*binWidth*float64(p.Temperature))
		}
	}
	return -math.MaxFloat32
}

func drawAll(logits []float32, top, temp float32, u float64, best int32) int32 {
	sum := 0.0
	for _, l := range logits {
		if possible(l) {
			sum += weight(l, top, temp)
		}
	}
	left, last := sum*u, best
	for i, l := range logits {
		if !possible(l) {
			continue
		}
		w := weight(l, top, temp)
		if left < w {
			return int32(i)
		}
		left -= w
		if w > 0 {
			last = int32(i)
		}
	}
	return last // rounding only
}

func draw(cand []candidate, left float64) int32 {
	for _, c := range cand {
		if left < c.p {
			return c.token
		}
		left -= c.p
	}
	for i := len(cand) - 1; i > 0; i-- { // rounding only
		if cand[i].p > 0 {
			return cand[i].token
		}
	}
	return cand[0].token
}

// argmax looks at blocks first: in a large vocabulary hardly any holds a new
// best, and one that does not is passed without a bounds check or an index for
// each logit. That halves the time, which all streams of a step pay one after
// another.
func argmax(logits []float32) int32 {
	best, at := float32(math.Inf(-1)), 0
	i := 0
	for ; i+8 <= len(logits); i += 8 {
		x := (*[8]float32)(logits[i:])
		if x[0] > best || x[1] > best || x[2] > best || x[3] > best || x[4] > best || x[5] > best || x[6] > best || x[7] > best {
			best, at = higher(x[:], best, at, i)
		}
	}
	_, at = higher(logits[i:], best, at, i)
	return int32(at)
}

// higher returns the best of some logits, which begin at index from, and the
// best so far.
func higher(logits []float32, best float32, at, from int) (float32, int) {
	for i, l := range logits {
		if l > best { // false for NaN; strict, so the lowest index wins
			best, at = l, from+i
		}
	}
	return best, at
}

func possible(l float32) bool { return l == l && l >= -math.MaxFloat32 }

func finite(l float32) float32 { return min(l, math.MaxFloat32) }

func weight(l, top, temp float32) float64 {
	return math.Exp((float64(finite(l)) - float64(top)) / float64(temp))
}
