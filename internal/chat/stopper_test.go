package chat

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAStopStringIsNeverShownHoweverItIsSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`[ab\n]{0,20}`).Draw(rt, "text")
		stop := rapid.StringMatching(`[ab\n]{1,4}`).Draw(rt, "stop")
		s := NewStopper(stop, "")
		keep := rapid.Bool().Draw(rt, "keep")
		if keep {
			s.KeepStop()
		}
		var shown strings.Builder
		stopped := false
		for rest := text; rest != "" && !stopped; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
			var part string
			part, stopped = s.Push(rest[:n])
			shown.WriteString(part)
			rest = rest[n:]
		}
		shown.WriteString(s.Flush())
		want, _, found := strings.Cut(text, stop)
		if found && keep {
			want += stop
		}
		if shown.String() != want || stopped != found || found != (s.Matched() == stop) {
			rt.Fatalf("shown %q, stopped %v; want %q, %v", shown.String(), stopped, want, found)
		}
	})
}
