package upstream

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/tandem-llm/tandem/internal/api"
)

// FuzzExamine edits any body: what was JSON stays JSON with every member of the
// client's, the router's own fields are the last of their name, and no reader can see
// other values for them.
func FuzzExamine(f *testing.F) {
	for _, s := range []string{`{}`, `{"rid":"a","prompt":"x"}`, `{"bootstrap\u005froom":1}`, `{"a":{"rid":"b"},"rid" : null }`, `{"a":"\\\"}"}`, "{\"a\":1}\x00", `{"stream":true,"model":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b, cause := Examine(api.Completion, in)
		if (b == nil) == (cause == nil) {
			t.Fatal("neither or both of a body and a cause")
		}
		if b == nil {
			return
		}
		out, _ := bodies(b)
		var was, is map[string]json.RawMessage
		if json.Unmarshal(in, &was) != nil {
			if json.Valid(out) {
				t.Fatalf("%q is no JSON and became %q", in, out)
			}
			return
		}
		if err := json.Unmarshal(out, &is); err != nil {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		if string(is["rid"]) != `"td-1"` || string(is["bootstrap_room"]) != "42" || string(is["bootstrap_host"]) != `"10.0.0.1"` {
			t.Fatalf("%q became %q", in, out)
		}
		for k, v := range was {
			if k != "rid" && !bytes.Equal(v, is[k]) {
				t.Fatalf("%q: %s became %s", k, v, is[k])
			}
		}
	})
}
