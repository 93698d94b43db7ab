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
		for _, p := range f.all() {
			m := f.metrics(p.url())
			for _, name := range []string{`tandem_drops_total{at="control",reason="malformed"}`, "tandem_transfer_malformed_total", "tandem_transfer_refused_total", "tandem_arena_misuse_total"} {
				if n, ok := m[name]; !ok || n != 0 {
					t.Errorf("%s: %s is %v, there: %v", p.name(), name, n, ok)
				}
			}
		}
	})
}
