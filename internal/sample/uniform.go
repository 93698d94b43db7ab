package sample

// Uniform returns the random number in [0, 1) of this seed at this position. It
// is two rounds of the SplitMix64 finalizer, the position folded in between, so
// that neighbouring seeds and positions give unrelated numbers.
func Uniform(seed uint64, pos int32) float64 {
	const golden = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	h := mix(seed + golden)
	h = mix(h ^ (uint64(uint32(pos))+1)*golden)
	return float64(h>>11) / (1 << 53)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
