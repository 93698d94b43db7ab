// Package sample chooses the next token from logits, as SGLang and llama.cpp do
// and in this order: Bias, Counts.Penalize, (the caller's masks,) temperature,
// top_k, top_p, min_p, and one random number.
//
// The sampler is counter based: its whole state is (seed, position), and the
// penalties' is the sequence itself. So a generation resumes anywhere, on
// another worker too, with the same random stream.
//
// It imports nothing of ours, and never keeps logits it was given.
package sample
