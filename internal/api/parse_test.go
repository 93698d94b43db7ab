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
	if c.Model != "m" || len(c.Messages) != 2 || c.Messages[0].Role != "system" || c.Messages[0].Content != "be brief" || c.Messages[1].Role != "user" || c.Messages[1].Content != "ab" {
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

func TestToolsCallsAndTheirAnswersBecomeACall(t *testing.T) {
	c := parse(t, Chat, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"21"}]}],"parallel_tool_calls":false,
		"tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object","properties":{}}}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`)
	if len(c.Tools) != 1 || c.Tools[0].Name != "f" || c.Tools[0].Description != "d" || !c.Tools[0].Strict || c.ToolChoice != ToolRequired || c.OneTool != "f" || c.Parallel {
		t.Errorf("%+v", c)
	}
	if m := c.Messages; m[1].Calls[0] != (ToolCall{"c1", "f", "{}"}) || m[2].CallID != "c1" || m[2].Name != "f" || m[2].Content != "21" {
		t.Errorf("%+v", m)
	}
	c = parse(t, Chat, `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}`)
	if c.Tools != nil || !c.Parallel {
		t.Errorf("with tool_choice none the model is told of %+v", c.Tools)
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

// Sixteen choices with twenty log probabilities of each token were computed to their
// end, and then were more than the router relays.
func TestAnAnswerThatTheRouterCannotRelayIsRefusedBeforeItIsComputed(t *testing.T) {
	const chat = `{"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":20,`
	for _, x := range []struct {
		kind Kind
		body string
		want string // "": it is taken
	}{
		{Chat, chat + `"n":16,"max_tokens":8192}`, "max_tokens: 16 choices of 8192 tokens with 21 log probabilities each make an answer of up to 371195904 bytes, above the limit of 67108864: 1481 tokens fit"},
		{Chat, chat + `"n":16,"max_tokens":1481}`, ""},
		{Chat, chat + `"n":16,"max_tokens":1482}`, "1481 tokens fit"},
		{Chat, chat + `"n":16,"max_tokens":8192,"stream":true}`, ""},
		{Chat, chat + `"max_tokens":8192}`, ""},
		{Completion, `{"prompt":"x","max_tokens":1048576}`, ""},
		{Completion, `{"prompt":"x","n":16,"max_tokens":1048576}`, "above the limit of 67108864"},
		{Generate, `{"text":"x","sampling_params":{"max_new_tokens":131072},"stream":true}`, ""},
		{Generate, `{"text":"x","return_logprob":true,"top_logprobs_num":20,"sampling_params":{"max_new_tokens":131072},"stream":true}`,
			"sampling_params.max_new_tokens: 1 choices of 131072 tokens with 21 log probabilities each make an answer of up to 140509184 bytes, above the limit of 8388608: 7825 tokens fit"},
	} {
		_, cause := Parse(x.kind, []byte(x.body), Limits{})
		switch {
		case x.want == "" && cause != nil:
			t.Errorf("%s: %v", x.body, cause)
		case x.want != "" && (cause == nil || cause.Code != room.BadRequest || !strings.Contains(cause.Detail, x.want)):
			t.Errorf("%s: %v, want %q", x.body, cause, x.want)
		}
	}
}

func TestARefusalNamesTheFieldTheValueAndTheLimit(t *testing.T) {
	const (
		msg  = `"messages":[{"role":"user","content":"x"}]`
		tool = `{"type":"function","function":{"name":"f"}}`
	)
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
		{Chat, `{"n":17,` + msg + `}`, "n: 17 is above the limit of 16"},
		{Chat, `{"n":0,` + msg + `}`, "n: 0 is below the least of 1"},
		{Chat, `{"stop":["a","b","c","d","e"],` + msg + `}`, `stop: 5 strings are above the limit of 4`},
		{Chat, `{"stop":[1],` + msg + `}`, `stop: [1] is neither a string nor a list`},
		{Chat, `{"stop":"` + strings.Repeat("x", 1025) + `",` + msg + `}`, "stop: 1025 bytes are above the limit of 1024"},
		{Chat, `{"stop_token_ids":[-1],` + msg + `}`, "stop_token_ids[0]: -1 is not a token id"},
		{Chat, `{"logprobs":5,` + msg + `}`, "logprobs: 5 is not true or false"},
		{Chat, `{"top_logprobs":2,` + msg + `}`, "top_logprobs: 2 needs logprobs"},
		{Chat, `{"logprobs":true,"top_logprobs":21,` + msg + `}`, "top_logprobs: 21 is above the limit of 20"},
		{Chat, `{"tools":[{}],` + msg + `}`, `tools[0].type: "" is refused`},
		{Chat, `{"tools":{},` + msg + `}`, "tools: {} is not a list"},
		{Chat, `{"tools":[{"type":"custom"}],` + msg + `}`, `tools[0].type: "custom" is refused`},
		{Chat, `{"tools":[{"type":"function"}],` + msg + `}`, "tools[0].function: missing"},
		{Chat, `{"tools":[{"type":"function","function":{}}],` + msg + `}`, "tools[0].function.name: missing"},
		{Chat, `{"tools":[{"type":"function","function":{"name":"a b"}}],` + msg + `}`, `tools[0].function.name: "a b" is not 1 to 64`},
		{Chat, `{"tools":[{"type":"function","function":{"name":"f","parameters":[]}}],` + msg + `}`, "tools[0].function.parameters: [] is not a JSON schema"},
		{Chat, `{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}],` + msg + `}`, `tools[0].function.parameters.type: "string" is refused`},
		{Chat, `{"tools":[{"type":"function","function":{"name":"f","parameters":{"x":"` + strings.Repeat("y", MaxToolSchema) + `"}}}],` + msg + `}`, "tools[0].function.parameters: 65544 bytes are above the limit of 65536"},
		{Chat, `{"tools":[{"type":"function","function":{"name":"f","parameters":` + strings.Repeat(`{"a":`, 129) + `1` + strings.Repeat("}", 129) + `}}],` + msg + `}`, "nested 129 levels deep, above the limit of 128"},
		{Chat, `{"tools":[` + strings.Repeat(tool+",", 128) + tool + `],` + msg + `}`, "tools: 129 tools are above the limit of 128"},
		{Chat, `{"tools":[` + tool + "," + tool + `],` + msg + `}`, `tools[1].function.name: "f" is the name of tools[0] too`},
		{Chat, `{"tools":["` + strings.Repeat("x", MaxToolsBytes) + `"],` + msg + `}`, "tools: 1048580 bytes are above the limit of 1048576"},
		{Chat, `{"tool_choice":"required",` + msg + `}`, `tool_choice: "required" needs tools`},
		{Chat, `{"tool_choice":"maybe",` + msg + `}`, `tool_choice: "maybe" is none of`},
		{Chat, `{"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"g"}},` + msg + `}`, `tool_choice: "g" is none of the tools: f`},
		{Chat, `{"parallel_tool_calls":1,` + msg + `}`, "parallel_tool_calls: 1 is not true or false"},
		{Chat, `{"functions":[{"name":"f"}],` + msg + `}`, `it is obsolete: send tools`},
		{Chat, `{"function_call":"auto",` + msg + `}`, `it is obsolete: send tool_choice`},
		{Completion, `{"prompt":"x","tools":[` + tool + `]}`, "tool calls are for /v1/chat/completions"},
		{Chat, `{"messages":[{"role":"function","name":"f","content":"x"}]}`, `messages[0].role: "function" is refused, it is obsolete: send the role "tool"`},
		{Chat, `{"messages":[{"role":"tool","content":"x"}]}`, `messages[0].tool_call_id: missing`},
		{Chat, `{"messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}`, `messages[0].tool_call_id: "c" is the id of no call`},
		{Chat, `{"messages":[{"role":"user","content":"x","tool_calls":[{}]}]}`, "messages[0].tool_calls: [{}] is refused: only an assistant's"},
		{Chat, `{"messages":[{"role":"assistant","tool_calls":[]}]}`, "messages[0].content: missing"},
		{Chat, `{"messages":[{"role":"assistant","tool_calls":[{"type":"function"}]}]}`, "messages[0].tool_calls[0].id: missing"},
		{Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":{}}}]}]}`, "messages[0].tool_calls[0].function.arguments: {} is not a string"},
		{Chat, `{"response_format":{"type":"xml"},` + msg + `}`, `response_format: type "xml" is none of`},
		{Chat, `{"response_format":{"type":"json_schema"},` + msg + `}`, "response_format.json_schema.schema: missing"},
		{Chat, `{"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}}},` + msg + `}`,
			"response_format.json_schema.schema: the schema at /properties/a/pattern: this keyword is not supported"},
		{Chat, `{"frequency_penalty":2.1,` + msg + `}`, "frequency_penalty: 2.1 is above the limit of 2"},
		{Chat, `{"presence_penalty":-3,` + msg + `}`, "presence_penalty: -3 is below the least of -2"},
		{Chat, `{"repetition_penalty":0,` + msg + `}`, "repetition_penalty: 0 must be above 0"},
		{Chat, `{"min_p":1.5,` + msg + `}`, "min_p: 1.5 is above"},
		{Chat, `{"min_tokens":9,"max_tokens":8,` + msg + `}`, "min_tokens: 9 is above the 8 tokens"},
		{Chat, `{"logit_bias":{"x":2},` + msg + `}`, `logit_bias: "x" is not a token id`},
		{Chat, `{"logit_bias":{"5":101},` + msg + `}`, `logit_bias: 101 for token 5 is outside`},
		{Chat, `{"logit_bias":[5],` + msg + `}`, `logit_bias: [5] is not an object`},
		{Chat, `{"stream":"yes",` + msg + `}`, `stream: "yes" is not true or false`},
		{Chat, `{"rid":"a b",` + msg + `}`, `rid: "a b" holds`},
		{Chat, `{"bootstrap_room":0,` + msg + `}`, "bootstrap_room: 0 is below the least of 1"},
		{Chat, `{"bootstrap_room":[1,2],` + msg + `}`, "bootstrap_room: batches"},
		{Completion, `{"prompt":""}`, "prompt: the prompt is empty"},
		{Completion, `{"prompt":[]}`, "prompt: the list of token ids is empty"},
		{Completion, `{"prompt":[1,-2]}`, "prompt[1]: -2 is not a token id"},
		{Completion, `{"prompt":[null]}`, "prompt: [null] is not a list of token ids"},
		{Completion, `{"prompt":["a",""]}`, "prompt[1]: the prompt is empty"},
		{Completion, `{"prompt":["a",null]}`, "prompt[1]: null is neither"},
		{Completion, `{"prompt":[` + strings.Repeat(`"a",`, 256) + `"a"]}`, "prompt: 257 prompts are above the limit of 256"},
		{Completion, `{"prompt":[` + strings.Repeat(`"a",`, 99) + `"a"],"n":6}`, "n: 100 prompts of 6 choices are above"},
		{Completion, `{"prompt":"x","best_of":2}`, "best_of: 2 is refused: only as many as n, 1"},
		{Completion, `{"prompt":"x","logprobs":21}`, "logprobs: 21 is above the limit of 20"},
		{Completion, `{"prompt":"x","suffix":"y"}`, `suffix: "y" is refused`},
		{Generate, `{}`, "text: missing"},
		{Generate, `{"text":"x","input_ids":[1]}`, "input_ids: text is there too"},
		{Generate, `{"input_ids":[[1],[]]}`, "input_ids[1]: the list of token ids is empty"},
		{Generate, `{"text":"x","sampling_params":{"max_new_tokens":-1}}`, "sampling_params.max_new_tokens: -1 is below"},
		{Generate, `{"text":"x","sampling_params":{"regex":"a"}}`, "sampling_params.regex: "},
		{Generate, `{"text":"x","sampling_params":{"ebnf":"root ::= a"}}`, "sampling_params.ebnf: "},
		{Generate, `{"text":"x","sampling_params":{"json_schema":"{"}}`, "sampling_params.json_schema: the schema is not JSON"},
		{Generate, `{"text":"x","return_logprob":true,"top_logprobs_num":21}`, "top_logprobs_num: 21 is above"},
		{Generate, `{"text":["x"],"return_logprob":[true]}`, "return_logprob: [true] is a list"},
		{Generate, `{"text":[1]}`, "text: [1] is not a string"},
		{Generate, `{"text":"x","sampling_params":3}`, "sampling_params: 3 is not an object"},
	} {
		_, cause := Parse(x.kind, []byte(x.body), Limits{})
		if cause == nil || cause.Code != room.BadRequest || !strings.Contains(cause.Detail, x.want) {
			t.Errorf("Parse(%s): %v, want %q", x.body, cause, x.want)
		}
	}
}

func TestTheRouterSeesWhatOneWorkerMustCompute(t *testing.T) {
	for _, x := range []struct {
		kind  Kind
		body  string
		local bool
	}{
		{Completion, `{"prompt":"x"}`, false},
		{Completion, `{"prompt":[1,2]}`, false},
		{Completion, `{"prompt": [ "x","y"]}`, true},
		{Completion, `{"prompt":[[1],[2]]}`, true},
		{Completion, `{"prompt":"x","echo":true}`, false},
		{Completion, `{"prompt":"x","logprobs":1}`, false},
		{Completion, `{"prompt":"x","logprobs":0,"echo":true}`, true},
		{Chat, `{"messages":[{"role":"user","content":"x"}],"logprobs":true,"n":3}`, false},
		{Generate, `{"text":"x","return_logprob":true}`, false},
		{Generate, `{"text":"x","return_logprob":true,"logprob_start_len":-1}`, false},
		{Generate, `{"text":"x","return_logprob":true,"logprob_start_len":0}`, true},
		{Generate, `{"text":"x","return_logprob":false,"logprob_start_len":0}`, false},
		{Generate, `{"text":["x","y"]}`, true},
		{Generate, `{"input_ids":[[1],[2]]}`, true},
	} {
		members, _, cause := Members([]byte(x.body))
		if cause != nil {
			t.Fatal(cause)
		}
		if c := parse(t, x.kind, x.body); Local(x.kind, members) != x.local || c.Local != x.local {
			t.Errorf("%s: %v, parsed %v", x.body, Local(x.kind, members), c.Local)
		}
	}
}

func TestParamsOfEveryNameBecomeACall(t *testing.T) {
	c := parse(t, Generate, `{"text":["x","y"],"return_logprob":true,"top_logprobs_num":2,"logprob_start_len":0,"sampling_params":{"max_new_tokens":0,"n":3,
		"stop":["a","","b","c","d","e"],"stop_token_ids":[7],"min_p":0.1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,
		"json_schema":"{\"type\":\"object\"}","no_stop_trim":true,"skip_special_tokens":false}}`)
	p := c.Params
	if c.Choices() != 6 || len(c.Stop) != 5 || !c.KeepStop || !c.FullText || !c.Local || !c.NoText || p.MaxTokens != 1 || c.PromptLogprobs != 3 || p.Logprobs != 3 ||
		p.MinP != 0.1 || p.Presence != 1 || p.Frequency != -1 || p.Repetition != 1.5 || p.StopTokens[0] != 7 || p.Grammar == "" {
		t.Errorf("%+v", c)
	}
	c = parse(t, Completion, `{"prompt":"x","echo":true,"logprobs":0,"max_tokens":0,"logit_bias":{"9":-100,"2":1},"min_tokens":0}`)
	if !c.Echo || !c.Local || c.Params.Logprobs != 1 || c.PromptLogprobs != 1 || !c.NoText || len(c.Params.Bias) != 2 || c.Params.Bias[0].Token != 2 {
		t.Errorf("%+v", c)
	}
	c = parse(t, Chat, `{"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":5,"n":2,"response_format":{"type":"json_object"},"tools":[],"tool_choice":"auto","store":false,"metadata":{"a":"b"},"user":"u"}`)
	if c.Local || c.Params.Logprobs != 6 || c.PromptLogprobs != 0 || c.N != 2 || c.Params.Grammar == "" {
		t.Errorf("%+v", c)
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
			if c.Local && !Local(kind, members) {
				t.Fatal("the router would not see that one worker must compute it")
			}
			if n := c.Params.MaxTokens; n < 1 || n > MaxMaxTokens {
				t.Fatalf("max tokens %d", n)
			}
			if kind == Chat != (len(c.Messages) > 0) || kind != Chat && c.Batch == nil && (c.Text == "") == (len(c.IDs) == 0) {
				t.Fatalf("not exactly one prompt: %+v", c)
			}
			if c.Leg != nil && c.Leg.Room < 1 {
				t.Fatal("a leg without a room")
			}
		}
	})
}
