package bounds

import "testing"

func TestAnAnswerThroughTheWholeFleetIsRight(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, f *fleet) {
		f.canary("stream")
		a := ask{prompt: text(100, 1), whole: true, tokens: 9}
		if bad := f.right(a, f.send(a)); bad != "" {
			t.Error(bad)
		}
		f.quiesce("afterwards")
	})
}
