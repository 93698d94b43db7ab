package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

func parse(t *testing.T, kind Kind, body string) *Call {
	t.Helper()
	c, cause := Parse(kind, []byte(body), Limits{})
	if cause != nil {
		t.Fatalf("Parse(%s): %v", body, cause)
	}
	return c
}

func TestAChatBodyBecomesACall(t *testing.T) {
	c := parse(t, Chat, `{"model":"m","messages":[{"role":"developer","content":"be brief"},
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
		"max_tokens":5,"max_completion_tokens":7,"temperature":0,"top_p":0.5,"top_k":-1,"seed":-3,"n":1,"stop":[],
		"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"user":"unknown fields pass","x":{"y":[1]}}`)
	if c.Model != "m" || len(c.Messages) != 2 || c.Messages[0] != (Message{"system", "be brief"}) || c.Messages[1] != (Message{"user", "ab"}) {
		t.Errorf("messages: %+v", c)
	}
	p := c.Params
	if p.MaxTokens != 7 || c.MaxTokensDefault || p.Temperature != 0 || p.TopP != 0.5 || p.TopK != 0 || int64(p.Seed) != -3 || !p.IgnoreEOS {
		t.Errorf("params: %+v", p)
	}
	if !c.Stream || !c.IncludeUsage || c.Leg != nil {
		t.Errorf("stream: %+v", c)
	}
}

func TestDefaultsAreOpenAIs(t *testing.T) {
	a := parse(t, Completion, `{"prompt":"x"}`)
	b := parse(t, Completion, `{"prompt":["x"],"max_tokens":null,"temperature":null}`)
	if a.Params.Temperature != 1 || a.Params.TopP != 1 || a.Params.MaxTokens != DefaultMaxTokens || !a.MaxTokensDefault || b.Text != "x" {
		t.Errorf("%+v %+v", a, b)
	}
	if a.Params.Seed == b.Params.Seed || !a.SeedDefault {
		t.Error("without a seed two requests drew the same one")
	}
}

func TestAGenerateBodyAndItsLegBecomeACall(t *testing.T) {
	c := parse(t, Generate, `{"input_ids":[1, 2,3],"sampling_params":{"temperature":0.5,"max_new_tokens":9,"top_k":4,"sampling_seed":11},
		"rid":"td-1","bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":9223372036854775807,
		"tandem_request_time":1700000000,"tandem_remaining_ms":1500}`)
	if len(c.IDs) != 3 || c.IDs[2] != 3 || c.Params.MaxTokens != 9 || c.Params.TopK != 4 || c.Params.Seed != 11 {
		t.Errorf("%+v", c)
	}
	want := Leg{"td-1", 9223372036854775807, "10.0.0.1", 8998, 1700000000, 1500 * time.Millisecond}
	if c.Leg == nil || *c.Leg != want || c.RID != "td-1" {
		t.Errorf("leg %+v, want %+v", c.Leg, want)
	}
	c = parse(t, Generate, `{"text":"x","rid":"label","bootstrap_port":null}`)
	if c.Leg != nil || c.RID != "label" {
		t.Errorf("a body without a room has a leg: %+v", c.Leg)
	}
}

func TestARefusalNamesTheFieldTheValueAndTheLimit(t *testing.T) {
	const msg = `"messages":[{"role":"user","content":"x"}]`
	for _, x := range []struct {
		kind Kind
		body string
		want string
	}{
		{Chat, ``, "the body is empty"},
		{Chat, `[1]`, `starts with "["`},
		{Chat, `{"a":1`, "ends at byte 6"},
		{Chat, `{"a":1} x`, `byte 8 is "x"`},
		{Chat, `{"a":tru}`, "not JSON"},
		{Chat, "{\"a\":\"\xff\"}", "not valid UTF-8"},
		{Chat, `{}`, "messages: missing"},
		{Chat, `{"messages":[]}`, "messages: the list is empty"},
		{Chat, `{"messages":["x"]}`, `messages[0]: "x" is not an object`},
		{Chat, `{"messages":[{"role":"x","content":"y"}]}`, `messages[0].role: "x" is none of`},
		{Chat, `{"messages":[{"role":"user"}]}`, "messages[0].content: missing"},
		{Chat, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, `messages[0].content[0]: type "image_url" is refused`},
		{Chat, `{"temperature":2.5,` + msg + `}`, "temperature: 2.5 is above the limit of 2"},
		{Chat, `{"temperature":-1,` + msg + `}`, "temperature: -1 is below the least of 0"},
		{Chat, `{"top_p":0,` + msg + `}`, "top_p: 0 must be above 0"},
		{Chat, `{"top_k":-2,` + msg + `}`, "top_k: -2 is below the least of -1"},
		{Chat, `{"max_tokens":0,` + msg + `}`, "max_tokens: 0 is below the least of 1"},
		{Chat, `{"max_completion_tokens":99999999999,` + msg + `}`, "max_completion_tokens: 99999999999 is above the limit of 16777216"},
		{Chat, `{"max_tokens":1e30,` + msg + `}`, "max_tokens: 1e30 is above"},
		{Chat, `{"max_tokens":1.5,` + msg + `}`, "max_tokens: 1.5 is not a whole number"},
		{Chat, `{"n":2,` + msg + `}`, "n: 2 is refused: only 1 choice"},
		{Chat, `{"stop":"x",` + msg + `}`, `stop: "x" is refused`},
		{Chat, `{"logprobs":true,` + msg + `}`, "logprobs: true is refused"},
		{Chat, `{"tools":[{}],` + msg + `}`, "tools: [{}] is refused"},
		{Chat, `{"response_format":{"type":"json_object"},` + msg + `}`, "response_format: "},
		{Chat, `{"frequency_penalty":0.1,` + msg + `}`, "frequency_penalty: 0.1 is refused"},
		{Chat, `{"logit_bias":{"1":2},` + msg + `}`, "logit_bias: "},
		{Chat, `{"stream":"yes",` + msg + `}`, `stream: "yes" is not true or false`},
		{Chat, `{"rid":"a b",` + msg + `}`, `rid: "a b" holds`},
		{Chat, `{"bootstrap_room":0,` + msg + `}`, "bootstrap_room: 0 is below the least of 1"},
		{Chat, `{"bootstrap_room":[1,2],` + msg + `}`, "bootstrap_room: batches"},
		{Completion, `{"prompt":""}`, "prompt: the prompt is empty"},
		{Completion, `{"prompt":[]}`, "prompt: the list of token ids is empty"},
		{Completion, `{"prompt":[1,-2]}`, "prompt[1]: -2 is not a token id"},
		{Completion, `{"prompt":[null]}`, "prompt: [null] is not a list of token ids"},
		{Completion, `{"prompt":["a","b"]}`, "prompt: a batch of 2 prompts is refused"},
		{Completion, `{"prompt":"x","best_of":2}`, "best_of: 2 is refused"},
		{Completion, `{"prompt":"x","logprobs":3}`, "logprobs: 3 is refused"},
		{Generate, `{}`, "text: missing"},
		{Generate, `{"text":"x","input_ids":[1]}`, "input_ids: text is there too"},
		{Generate, `{"input_ids":[[1]]}`, "input_ids: a batch is refused"},
		{Generate, `{"text":"x","sampling_params":{"max_new_tokens":-1}}`, "sampling_params.max_new_tokens: -1 is below"},
		{Generate, `{"text":"x","sampling_params":{"regex":"a"}}`, "sampling_params.regex: "},
	} {
		_, cause := Parse(x.kind, []byte(x.body), Limits{})
		if cause == nil || cause.Code != room.BadRequest || !strings.Contains(cause.Detail, x.want) {
			t.Errorf("Parse(%s): %v, want %q", x.body, cause, x.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"messages":[{"role":"user","content":"x"}]}`, `{"prompt":[1,2]}`, `{"prompt":[[1]]}`,
		`{"text":"a\"b","bootstrap_room":1,"x":{"y":["}"]}}`, `{"input_ids":[ ]}`, `{}`, `{"a":}`, `{"\u0061":"\\"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		members, end, cause := Members(body)
		var object map[string]json.RawMessage
		if json.Unmarshal(body, &object) == nil && object != nil {
			if cause != nil || body[end] != '}' {
				t.Fatalf("a JSON object was refused: %v", cause)
			}
			seen := map[string]bool{}
			for _, m := range members {
				seen[m.Key] = true
			}
			for k := range object {
				if !seen[k] {
					t.Fatalf("the key %q was not seen", k)
				}
			}
		}
		for _, kind := range Kinds() {
			c, cause := Parse(kind, body, Limits{})
			if (c == nil) == (cause == nil) {
				t.Fatal("neither or both of a call and a cause")
			}
			if c == nil {
				continue
			}
			if n := c.Params.MaxTokens; n < 1 || n > MaxMaxTokens {
				t.Fatalf("max tokens %d", n)
			}
			if kind == Chat != (len(c.Messages) > 0) || kind != Chat && (c.Text == "") == (len(c.IDs) == 0) {
				t.Fatalf("not exactly one prompt: %+v", c)
			}
			if c.Leg != nil && c.Leg.Room < 1 {
				t.Fatal("a leg without a room")
			}
		}
	})
}
