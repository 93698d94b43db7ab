package upstream

import (
	"bytes"
	"io"
)

// Parts are a leg's body in pieces, so that the long ones are the client's own bytes:
// a copy for each leg would treble what a long prompt costs. Nobody changes them.
type Parts [][]byte

// Len returns the length of the whole.
func (p Parts) Len() (n int64) {
	for _, b := range p {
		n += int64(len(b))
	}
	return n
}

// Reader reads the whole.
func (p Parts) Reader() io.Reader {
	readers := make([]io.Reader, len(p))
	for i, b := range p {
		readers[i] = bytes.NewReader(b)
	}
	return io.MultiReader(readers...)
}
