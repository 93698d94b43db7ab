package upstream

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/api"
)

var leg = Leg{RID: "td-1", Room: 42, BootstrapHost: "10.0.0.1", BootstrapPort: 8998, RequestTime: 1700000000, Remaining: 1500 * time.Millisecond}

const appended = `"rid":"td-1","bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":42,"tandem_request_time":1700000000,"tandem_remaining_ms":1500}`

// bodies returns both legs' as they are sent.
func bodies(b *Body) (prefill, decode []byte) {
	p, d := Tandem{}.Bodies(b, leg)
	return bytes.Join(p, nil), bytes.Join(d, nil)
}

func TestTheLegsFieldsAreAppendedAndNothingElseChanges(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{` + appended,
		` { "a" : 1.50e+2 , "b":"\u0041}" } ` + "\n":  ` { "a" : 1.50e+2 , "b":"\u0041}" ,` + appended,
		`{"x":[{"rid":1,"bootstrap_room":"inside"}]}`: `{"x":[{"rid":1,"bootstrap_room":"inside"}],` + appended,
		`{"a":1,"rid": "mine" ,"b":2}`:                `{"a":1,"rid": "td-1" ,"b":2,` + strings.TrimPrefix(appended, `"rid":"td-1",`),
	} {
		b, cause := Examine(api.Chat, []byte(in))
		if cause != nil {
			t.Errorf("%s: %v", in, cause)
			continue
		}
		p, d := bodies(b)
		if string(p) != want || !bytes.Equal(p, d) || !json.Valid(p) {
			t.Errorf("%s\n got %s\nwant %s", in, p, want)
		}
	}
}

func TestFieldsOfTheRouterAreRefusedHoweverTheyAreWritten(t *testing.T) {
	for _, in := range []string{`{"bootstrap_room":1}`, `{"a":"\"","bootstrap\u005froom":1}`, `{"Bootstrap_Host":"x"}`, `{"x":{},"bootstrap_port":null}`,
		`{"tandem_remaining_ms":1}`, `{"rid":["a"]}`, `{"rid":"a","rid":"b"}`, `{"RID":"a"}`, `{"rid":7}`, `[]`, `{"a"`, ``} {
		if _, cause := Examine(api.Chat, []byte(in)); cause == nil {
			t.Errorf("%s was taken", in)
		}
	}
}

func TestAnyObjectKeepsItsBytes(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) any {
		return rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Float64Range(-1e300, 1e300), func(f float64) any { return f }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(l []string) any { return l }),
			rapid.Map(rapid.MapOf(rapid.String(), rapid.Bool()), func(m map[string]bool) any { return m }),
		).Draw(t, "value")
	})
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.String(), value).Draw(t, "object")
		in, err := json.MarshalIndent(object, "", rapid.StringMatching("[ \t]{0,3}").Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		b, cause := Examine(api.Chat, in)
		if cause != nil {
			t.Skip("it drew a field of the router's")
		}
		out, _ := bodies(b)
		if b.ridB == 0 && !bytes.HasPrefix(out, in[:bytes.LastIndexByte(in, '}')]) {
			t.Fatalf("bytes changed:\n%s\n%s", in, out)
		}
		var back map[string]any
		if err := json.Unmarshal(out, &back); err != nil || back["bootstrap_room"] != 42.0 || back["rid"] != "td-1" {
			t.Fatalf("%s: %v", out, err)
		}
	})
}

func TestTheLegsShareTheClientsBytes(t *testing.T) {
	for _, rid := range []string{``, `"rid":"mine",`} {
		in := []byte(`{` + rid + `"prompt":"` + strings.Repeat("words ", 100_000) + `"}`)
		b, cause := Examine(api.Chat, in)
		if cause != nil {
			t.Fatal(cause)
		}
		p, d := Tandem{}.Bodies(b, leg)
		own := 0 // bytes that are not the client's
		for _, part := range append(append(Parts{}, p...), d...) {
			if len(part) < 1000 {
				own += len(part)
			} else if &part[len(part)-1] != &in[len(in)-2] {
				t.Errorf("%d bytes were copied", len(part))
			}
		}
		read, err := io.ReadAll(p.Reader())
		if whole, _ := bodies(b); err != nil || !bytes.Equal(read, whole) || p.Len() != int64(len(whole)) {
			t.Errorf("%d bytes are read, %d announced, of %d: %v", len(read), p.Len(), len(whole), err)
		}
		if own > 1000 {
			t.Errorf("%d bytes are the legs' own", own)
		}
	}
}

func BenchmarkALongPrompt(b *testing.B) {
	in := []byte(`{"model":"m","prompt":"` + strings.Repeat("words and more ", 30_000) + `","stream":true}`)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		body, _ := Examine(api.Chat, in)
		Tandem{}.Bodies(body, leg)
	}
}
