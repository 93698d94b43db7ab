package sim

import (
	"encoding/binary"

	"github.com/tandem-llm/tandem/internal/engine"
)

// A KV row holds, in its K half, the chain hash after the position, the token
// and the position; all other bytes follow from the hash, so no bit is unused.
const (
	minHalf   = 16 // u64 hash, u32 token, u32 position
	chainSeed = 0x7461_6e64_656d_2121
)

// link returns the chain hash after token t at position p, given the one before.
func link(h uint64, t engine.Token, p int32) uint64 {
	return mix(h ^ mix(uint64(uint32(t))<<32|uint64(uint32(p))))
}

func mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// writeRow fills the row of one position: K half, then V half.
func writeRow(row []byte, h uint64, t engine.Token, p int32) {
	binary.LittleEndian.PutUint64(row, h)
	binary.LittleEndian.PutUint32(row[8:], uint32(t))
	binary.LittleEndian.PutUint32(row[12:], uint32(p))
	x := h
	for i := minHalf; i < len(row); i += 8 {
		x = mix(x)
		if len(row)-i >= 8 {
			binary.LittleEndian.PutUint64(row[i:], x)
			continue
		}
		for j := i; j < len(row); j++ {
			row[j] = byte(x >> (8 * (j - i)))
		}
	}
}

// rowHash returns the chain hash a row holds.
func rowHash(row []byte) uint64 { return binary.LittleEndian.Uint64(row) }

// rowHolds says whether the row is, bit for bit, what Compute would have written
// after the chain hash h for the token it names. scratch has the row's length.
func rowHolds(row, scratch []byte, h uint64, p int32) bool {
	t := engine.Token(binary.LittleEndian.Uint32(row[8:]))
	writeRow(scratch, link(h, t, p), t, p)
	return string(row) == string(scratch)
}

// Expect returns the first n tokens that greedy generation gives for a prompt,
// under the vocabulary and end-of-text setting of c. It stops after the
// end-of-generation token, which it does not return.
func Expect(c Config, prompt []engine.Token, n int) []engine.Token {
	c = c.withDefaults()
	h := uint64(chainSeed)
	p := int32(0)
	for _, t := range prompt {
		h = link(h, t, p)
		p++
	}
	var out []engine.Token
	for range n {
		t := choose(c, h, p)
		if t == tokenEOS {
			break
		}
		out = append(out, t)
		h = link(h, t, p)
		p++
	}
	return out
}

// choose returns the likeliest token at position p after the chain hash h.
func choose(c Config, h uint64, p int32) engine.Token {
	x := mix(h ^ uint64(uint32(p)))
	if c.MeanLength > 0 && x%uint64(c.MeanLength) == 0 {
		return tokenEOS
	}
	return engine.Token(firstWord + int(x>>32)%(c.Vocab-firstWord))
}
