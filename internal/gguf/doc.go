// Package gguf writes small GGUF v3 files and reads the metadata of any.
//
// It exists for two purposes. The writer makes the random-weight models that
// tests load into the real engine (package testmodel). The reader answers, before
// the engine is asked to load a file, whether that file is a model at all and
// whether it is whole, so that a truncated download is named as such and not as
// a failure inside a C library.
//
// The caller owes a path or an io.Writer, and nothing else; no value returned
// here holds a file open.
//
// It never reads tensor data, never maps memory, and never trusts a count or a
// length it read: every one is bounded by the size of the file and by the
// limits in reader.go. It knows nothing of architectures beyond their names.
package gguf
