// Package client sends the benchmarks' requests and times every token as a
// client sees it. It speaks OpenAI's completions, which Tandem and llama.cpp's
// own server both serve.
package client
