// Package llama is the engine.Backend over llama.cpp, through the yzma binding
// (no cgo). One process loads the libraries once; it may hold several Backends.
//
// KV leaves and enters by way of spare sequences: a range is copied to a spare
// (cells are shared, nothing moves), written out, and the spare is dropped. What
// comes in is first compared, header for header, with what this backend would
// write itself (kv.Template.Verify): the library trusts every byte of it.
//
// Callers owe it one goroutine at a time, as engine.Backend says, and memory for
// blobs that lies in an Arena. It never reads a peer's header.
package llama
