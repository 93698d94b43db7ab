package room

import (
	"crypto/sha256"
	"encoding/binary"
)

// TokenDigest returns the digest of a prompt's token ids that READY carries: the
// first 16 bytes of the SHA-256 of the ids as little-endian uint32.
func TokenDigest(tokens []int32) Digest {
	h := sha256.New()
	var buf [1024]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], uint32(t))
		}
		h.Write(buf[:4*n])
		tokens = tokens[n:]
	}
	var d Digest
	copy(d[:], h.Sum(nil))
	return d
}
