// Package testmodel makes small models with random weights for tests: real GGUF
// files that the real engine loads, tokenizes with and decodes.
//
// The weights are random but deterministic: a model is the same bytes on every
// machine and in every run, so logits of two processes can be compared. They are
// scaled so that the logits are not degenerate: the argmax changes from position
// to position, and attention is sharp enough that a wrong KV cache shows in the
// logits. The text they write has no meaning.
//
// The special tokens (begin and end of sequence, turn markers, unknown)
// have an output row of zeros: their logit is 0 while the best of the others is
// several, so greedy decoding runs to max_tokens and never ends by chance. A test
// that needs an end forces one with a logit bias or a stop string.
//
// Files are made once and kept in the user's cache directory under a hash of the
// recipe; making one takes well under a second. Processes may race: each writes
// its own temporary file and renames it into place.
//
// The caller must not change or remove a file it was given.
package testmodel
