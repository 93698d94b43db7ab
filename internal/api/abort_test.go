package api

import (
	"slices"
	"testing"
)

func TestAnAbortNamesExactRequestsAndTheirRooms(t *testing.T) {
	for _, in := range [][]AbortTarget{{{"a", 0}}, {{"a", 7}}, {{"a", 7}, {"a1", 0}, {"a10", 9}}} {
		out, all, cause := ParseAbort(AbortJSON(in))
		if cause != nil || all || !slices.Equal(in, out) {
			t.Errorf("%v came back as %v, %v", in, out, cause)
		}
	}
	for _, bad := range []string{``, `{}`, `{"rid":""}`, `{"rids":["a"],"bootstrap_rooms":[1,2]}`, `{"rid":7}`} {
		if _, _, cause := ParseAbort([]byte(bad)); cause == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if _, all, cause := ParseAbort([]byte(`{"abort_all":true}`)); !all || cause != nil {
		t.Error("abort_all was not taken")
	}
}
