package testmodel

import "hash/fnv"

// random is a splitmix64 generator. It is written out here, and not taken from
// math/rand, because its sequence must never change: file bytes follow from it.
type random uint64

// newRandom returns the generator of one tensor.
func newRandom(seed uint64, tensor string) *random {
	h := fnv.New64a()
	h.Write([]byte(tensor))
	r := random(seed ^ h.Sum64())
	return &r
}

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// sumDeviation is the standard deviation of the sum of four uniform 16-bit numbers.
const sumDeviation = 37837.2274

// fill sets dst to numbers that are near enough to normal, with mean 0 and the
// given standard deviation: the sum of the four 16-bit quarters of each word.
// All but the one multiplication is integer arithmetic, so that no machine's
// fused operations can change the result.
func (r *random) fill(dst []float32, deviation float64) {
	scale := float32(deviation / sumDeviation)
	for i := range dst {
		w := r.next()
		sum := int32(w&0xffff) + int32(w>>16&0xffff) + int32(w>>32&0xffff) + int32(w>>48) - 2*65535
		dst[i] = float32(sum) * scale
	}
}
