package api

import (
	"slices"
	"testing"
)

// FuzzParseAbort reads anything as an abort: what is taken names a request or all of
// them, within the limit, and says the same when it is written again.
func FuzzParseAbort(f *testing.F) {
	for _, s := range []string{`{"rid":"a"}`, `{"rids":["a","b"],"bootstrap_rooms":["1","2"]}`, `{"rids":["a",""],"bootstrap_rooms":[1,2]}`, `{"abort_all":true}`, `{"rid":"a","rids":["b"]}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		targets, all, cause := ParseAbort(body)
		switch {
		case cause != nil && (all || targets != nil), cause == nil && !all && len(targets) == 0, len(targets) > MaxAborts+1:
			t.Fatalf("%d targets, all %v, %v", len(targets), all, cause)
		}
		if len(targets) == 0 || len(targets) > MaxAborts {
			return
		}
		again, _, cause := ParseAbort(AbortJSON(targets))
		if cause != nil || !slices.Equal(again, targets) {
			t.Fatalf("%v became %v: %v", targets, again, cause)
		}
	})
}
