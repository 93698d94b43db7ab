// Package sim is an engine.Backend that replaces only compute: it keeps cells,
// slots, positions and KV bytes as strictly as llama.cpp does, takes as long as
// it is told to, and generates text that proves what it was computed from.
//
// The KV of a position holds a hash over all tokens up to it, and the next token
// follows from the hash in the KV bytes and from nothing else. KV of another
// request or position therefore gives another text, and KV with a flipped bit
// gives Corrupt tokens. Expect computes the right text without a backend.
package sim
