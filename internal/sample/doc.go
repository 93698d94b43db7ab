// Package sample chooses the next token from logits. The sampler is counter
// based: its whole state is (seed, position), so a generation resumes anywhere,
// on another worker too, with the same random stream.
//
// It imports nothing of ours, and never keeps logits it was given.
package sample
