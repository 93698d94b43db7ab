package kv

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/tandem-llm/tandem/internal/id"
)

// Fingerprint names a Layout: two workers can hand KV over only if theirs are equal.
type Fingerprint uint64

// String prints a fingerprint in hexadecimal.
func (f Fingerprint) String() string { return fmt.Sprintf("%016x", uint64(f)) }

// ChunkID says exactly which KV a chunk's bytes are. Every field is covered by
// the chunk's checksum, so bytes of another room, generation, position or
// layout can never pass as this chunk.
type ChunkID struct {
	Room   id.Room
	Gen    id.Generation
	Seq    uint32 // ordinal of the chunk in this hand-over: 0, 1, 2, …
	P0, P1 int32  // token positions [P0, P1) of the prompt
	Layout Fingerprint
}

// Tokens returns the number of tokens in the chunk.
func (c ChunkID) Tokens() int { return int(c.P1 - c.P0) }

// chunkIDSize is the length of a ChunkID as Seal hashes it.
const chunkIDSize = 8 + 8 + 4 + 4 + 4 + 8

// Sum returns the XXH3-64 of a chunk's payload alone. It can be taken before the
// chunk's identity is known: prefill exports before READY brings the generation.
func Sum(payload []byte) uint64 { return xxh3.Hash(payload) }

// Seal returns the checksum that travels with a chunk: the XXH3-64 of the 36
// little-endian bytes of its identity, seeded with the payload's Sum.
func Seal(c ChunkID, sum uint64) uint64 {
	var b [chunkIDSize]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(c.Room))
	binary.LittleEndian.PutUint64(b[8:], uint64(c.Gen))
	binary.LittleEndian.PutUint32(b[16:], c.Seq)
	binary.LittleEndian.PutUint32(b[20:], uint32(c.P0))
	binary.LittleEndian.PutUint32(b[24:], uint32(c.P1))
	binary.LittleEndian.PutUint64(b[28:], uint64(c.Layout))
	return xxh3.HashSeed(b[:], sum)
}

// Checksum returns the checksum of a chunk's identity and payload.
func Checksum(c ChunkID, payload []byte) uint64 { return Seal(c, Sum(payload)) }
