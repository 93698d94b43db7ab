package chat

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzText pushes any bytes in any pieces through the detokenizer and the stopper:
// what is shown is whole characters, the same for all pieces, and no stop string.
func FuzzText(f *testing.F) {
	f.Add([]byte("hello world"), "o w", uint8(3))
	f.Add([]byte("a\xe2\x82\xac\xe2\x82"), "\u20ac", uint8(1))
	f.Add([]byte("aaab"), "aab", uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, stop string, size uint8) {
		if stop == "" || !utf8.ValidString(stop) {
			return
		}
		show := func(size int) string {
			var d Detokenizer
			s := NewStopper(stop)
			var out strings.Builder
			for rest := in; len(rest) > 0; {
				n := min(size, len(rest))
				shown, stopped := s.Push(d.Push(rest[:n]))
				out.WriteString(shown)
				if stopped {
					return out.String()
				}
				rest = rest[n:]
			}
			shown, stopped := s.Push(d.Flush())
			out.WriteString(shown)
			if !stopped {
				out.WriteString(s.Flush())
			}
			return out.String()
		}
		whole, pieces := show(max(1, len(in))), show(1+int(size))
		if whole != pieces {
			t.Fatalf("whole %q, in pieces of %d %q", whole, 1+int(size), pieces)
		}
		if !utf8.ValidString(whole) || strings.Contains(whole, stop) {
			t.Fatalf("%q was shown", whole)
		}
	})
}
