// Package kv holds what the hand-over moves and where it lies: the Layout of a
// model's KV cache, the Chunk (KV of C consecutive prompt tokens), the Arena of
// mmap memory with leases, the chunk checksum, and verify.go, the trust boundary
// between a peer's bytes and the engine library.
//
// Callers owe every lease they take exactly one Release per holder. The package
// never talks to a network, an engine or a clock that it was not given.
package kv
