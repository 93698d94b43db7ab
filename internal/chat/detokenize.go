package chat

import (
	"strings"
	"unicode/utf8"
)

// replacement stands for bytes that are no character.
const replacement = "\uFFFD"

// Detokenizer joins the bytes of one answer's tokens into whole characters. Its
// output, joined, does not depend on how the bytes were split. The zero value
// is ready. One goroutine uses it.
type Detokenizer struct {
	held  [utf8.UTFMax]byte // the start of a character
	nheld int               // ≤ 3
}

// Push adds a token's bytes and returns the characters that are complete now.
// Bytes that cannot be part of one become U+FFFD, one for each longest start of
// a character, and never break what follows.
func (d *Detokenizer) Push(piece []byte) string {
	if len(piece) == 0 {
		return ""
	}
	if d.nheld == 0 && utf8.Valid(piece) { // nearly always
		return string(piece)
	}
	in := append(d.held[:d.nheld:d.nheld], piece...)
	d.nheld = 0
	var b strings.Builder
	for len(in) > 0 {
		n, whole, more := start(in)
		switch {
		case whole:
			b.Write(in[:n])
		case more:
			d.nheld = copy(d.held[:], in)
			return b.String()
		default:
			b.WriteString(replacement)
		}
		in = in[n:]
	}
	return b.String()
}

// Flush ends the answer: a character that lacks bytes becomes one U+FFFD.
func (d *Detokenizer) Flush() string {
	if d.nheld == 0 {
		return ""
	}
	d.nheld = 0
	return replacement
}

// start looks at the character that b begins with: its first n bytes are whole,
// or they are all of b and more may follow, or neither and n counts the longest
// start that any character has.
func start(b []byte) (n int, whole, more bool) {
	lo, hi := byte(0x80), byte(0xBF) // what the second byte may be
	size := 0
	switch c := b[0]; {
	case c < 0x80:
		return 1, true, false
	case c >= 0xC2 && c <= 0xDF:
		size = 2
	case c >= 0xE0 && c <= 0xEF:
		size = 3
		if c == 0xE0 {
			lo = 0xA0 // below it two bytes suffice
		} else if c == 0xED {
			hi = 0x9F // above it are surrogates
		}
	case c >= 0xF0 && c <= 0xF4:
		size = 4
		if c == 0xF0 {
			lo = 0x90 // below it three bytes suffice
		} else if c == 0xF4 {
			hi = 0x8F // above it is nothing
		}
	default:
		return 1, false, false
	}
	for n = 1; n < size; n++ {
		if n == len(b) {
			return n, false, true
		}
		if b[n] < lo || b[n] > hi {
			return n, false, false
		}
		lo, hi = 0x80, 0xBF
	}
	return n, true, false
}
