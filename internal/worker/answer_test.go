package worker

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// both runs a test on the simulator and on the library.
func both(t *testing.T, test func(t *testing.T, s *served)) {
	t.Run("sim", func(t *testing.T) { test(t, simulated(t)) })
	t.Run("llama", func(t *testing.T) { test(t, real(t)) })
}

func TestStreamAndDocumentSayTheSame(t *testing.T) {
	both(t, func(t *testing.T, s *served) {
		choices := 3
		if s.s.cfg.Engine == "llama" { // where others in the batch change the last digits
			choices = 1
		}
		for _, stop := range []string{`[]`, `["e","1"]`, `[" w","zzzz"]`, `["\n"]`} {
			for seed := range 3 {
				body := fmt.Sprintf(`"messages":[{"role":"user","content":"say é"}],"max_tokens":40,"n":%d,"seed":%d,"logprobs":true,"top_logprobs":2,"stop":%s,"min_tokens":%d,"frequency_penalty":0.3`, choices, seed, stop, seed*4)
				var whole chatAnswer
				s.answer("/v1/chat/completions", "{"+body+"}", &whole)
				var text [3]strings.Builder
				var finish [3]string
				var logs [3][]logprob
				var last *usage
				for _, e := range s.events("/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},`+body+"}") {
					var c chatAnswer
					if err := json.Unmarshal(e, &c); err != nil {
						t.Fatal(err)
					}
					last = c.Usage
					for _, x := range c.Choices {
						text[x.Index].WriteString(x.Delta.Content)
						if x.Logs != nil {
							logs[x.Index] = append(logs[x.Index], x.Logs.Content...)
						}
						if x.Finish != nil {
							finish[x.Index] = *x.Finish
						}
					}
				}
				if last == nil || whole.Usage == nil || *last != *whole.Usage || last.Total != last.Prompt+last.Completion {
					t.Fatalf("usage %+v, %+v", last, whole.Usage)
				}
				for i, c := range whole.Choices {
					if c.Index != i || c.Message.Content != text[i].String() || *c.Finish != finish[i] || len(c.Logs.Content) != len(logs[i]) {
						t.Fatalf("choice %d: %q by %s with %d logs; as a stream %q by %s with %d", i, c.Message.Content, *c.Finish, len(c.Logs.Content), text[i].String(), finish[i], len(logs[i]))
					}
					var list []string
					json.Unmarshal([]byte(stop), &list)
					for _, x := range list {
						if seed == 0 && strings.Contains(c.Message.Content, x) {
							t.Fatalf("the stop string %q is in %q", x, c.Message.Content)
						}
					}
					var shown strings.Builder
					for _, l := range c.Logs.Content {
						if *l.Logprob > 0 || len(l.Top) != 2 || *l.Top[0].Logprob < *l.Top[1].Logprob {
							t.Fatalf("%+v", l)
						}
						for _, b := range l.Bytes {
							shown.WriteByte(byte(b))
						}
					}
					if stop == `[]` && !strings.HasPrefix(strings.ToValidUTF8(shown.String(), ""), strings.ReplaceAll(c.Message.Content, "\uFFFD", "")[:min(8, len(c.Message.Content))]) && !strings.Contains(c.Message.Content, "\uFFFD") {
						t.Fatalf("the logs spell %q, the text is %q", shown.String(), c.Message.Content)
					}
				}
			}
		}
	})
}

func TestAStopEndsTheSequenceAndIsNamed(t *testing.T) {
	s := simulated(t)
	var free generated
	s.answer("/generate", `{"text":"x","sampling_params":{"temperature":0,"max_new_tokens":12}}`, &free)
	if free.Meta.Finish.Type != "length" || free.Meta.Finish.Length != 12 || len(free.IDs) != 12 || free.Meta.Completion != 12 {
		t.Fatalf("%+v", free)
	}
	// Words are six bytes: this stop string lies across the third and the fourth.
	stop := free.Text[15:20]
	var cut, kept, byID generated
	s.answer("/generate", `{"text":"x","sampling_params":{"temperature":0,"max_new_tokens":12,"stop":["nothing",`+quote(stop)+`]}}`, &cut)
	if cut.Text != free.Text[:15] || cut.Meta.Finish.Type != "stop" || cut.Meta.Finish.Matched != stop || cut.Meta.Completion != 4 || len(cut.IDs) != 4 {
		t.Errorf("%+v", cut)
	}
	s.answer("/generate", `{"text":"x","sampling_params":{"temperature":0,"max_new_tokens":12,"no_stop_trim":true,"stop":`+quote(stop)+`}}`, &kept)
	if kept.Text != free.Text[:20] {
		t.Errorf("%+v", kept)
	}
	s.answer("/generate", `{"text":"x","sampling_params":{"temperature":0,"max_new_tokens":12,"stop_token_ids":[`+fmt.Sprint(free.IDs[5])+`]}}`, &byID)
	if byID.Text != free.Text[:30] || byID.Meta.Finish.Matched != float64(free.IDs[5]) || byID.Meta.Completion != 5 {
		t.Errorf("%+v", byID)
	}
	var end generated
	s.answer("/generate", `{"text":"x","sampling_params":{"max_new_tokens":12,"min_new_tokens":3,"logit_bias":{"257":100}}}`, &end)
	if end.Meta.Finish.Type != "stop" || end.Meta.Finish.Matched != 257.0 || end.Meta.Completion != 3 {
		t.Errorf("%+v", end)
	}
	var full generated
	s.answer("/generate", `{"text":"x","sampling_params":{"max_new_tokens":2,"ignore_eos":true,"skip_special_tokens":false,"logit_bias":{"257":100}}}`, &full)
	if full.Text != "</s></s>" || full.Meta.Finish.Type != "length" {
		t.Errorf("%+v", full)
	}
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

func TestAPromptsLogprobsAreThoseOfGeneratingIt(t *testing.T) {
	both(t, func(t *testing.T, s *served) {
		const prompt = "The quick brown fox, é and 漢字, jumps over the lazy dog"
		var first textAnswer
		s.answer("/v1/completions", `{"prompt":`+quote(prompt)+`,"temperature":0,"max_tokens":20,"ignore_eos":true,"logprobs":3}`, &first)
		made := first.Choices[0].Logs
		var tokens struct{ Tokens []int32 }
		s.answer("/tokenize", `{"prompt":`+quote(prompt)+`}`, &tokens)
		var ids generated
		s.answer("/generate", `{"text":`+quote(prompt)+`,"return_logprob":true,"top_logprobs_num":2,"return_text_in_logprobs":true,"sampling_params":{"temperature":0,"max_new_tokens":20,"ignore_eos":true}}`, &ids)
		if len(ids.Meta.Output) != 20 || len(ids.Meta.OutputTop) != 20 || len(ids.Meta.OutputTop[0]) != 2 || len(ids.Meta.Input) != 0 {
			t.Fatalf("%+v", ids.Meta)
		}
		all, _ := json.Marshal(append(tokens.Tokens, ids.IDs...))
		var echo textAnswer
		s.answer("/v1/completions", `{"prompt":`+string(all)+`,"max_tokens":0,"echo":true,"logprobs":2}`, &echo)
		got := echo.Choices[0].Logs
		n := len(tokens.Tokens)
		if len(got.Logs) != n+20 || got.Logs[0] != nil || got.Top[0] != nil || echo.Usage.Completion != 0 || echo.Usage.Prompt != n+20 {
			t.Fatalf("%d logs of %d, usage %+v", len(got.Logs), n+20, echo.Usage)
		}
		for i := range 20 {
			if d := math.Abs(*got.Logs[n+i] - *made.Logs[i]); d > 0.05 { // other batch shapes
				t.Errorf("token %d: %v, generated with %v", i, *got.Logs[n+i], *made.Logs[i])
			}
			if d := math.Abs(*made.Logs[i] - ids.Meta.Output[i][0].(float64)); d > 0.05 {
				t.Errorf("/generate differs at %d: %v", i, d)
			}
			if len(made.Top[i]) < 3 || len(made.Top[i]) > 4 {
				t.Errorf("%d likeliest", len(made.Top[i]))
			}
		}
		var input generated
		s.answer("/generate", `{"input_ids":`+string(all)+`,"return_logprob":true,"top_logprobs_num":1,"logprob_start_len":5,"sampling_params":{"max_new_tokens":0}}`, &input)
		if len(input.Meta.Input) != n+20-5 || len(input.Meta.InputTop) != n+15 || math.Abs(input.Meta.Input[n][0].(float64)-*got.Logs[n+5]) > 1e-3 || input.Text != "" || len(input.IDs) != 0 {
			t.Errorf("%+v", input.Meta)
		}
		var whole textAnswer
		s.answer("/v1/completions", `{"prompt":`+quote(prompt)+`,"max_tokens":3,"echo":true,"logprobs":1,"temperature":0}`, &whole)
		c := whole.Choices[0]
		if !strings.HasPrefix(c.Text, prompt) || len(c.Logs.Tokens) != n+3 || c.Logs.Offset[n] != len([]rune(prompt)) {
			t.Errorf("%q, offsets %v", c.Text, c.Logs.Offset)
		}
		var parts strings.Builder
		for _, e := range s.events("/v1/completions", `{"prompt":`+quote(prompt)+`,"max_tokens":3,"echo":true,"logprobs":1,"temperature":0,"stream":true}`) {
			var c textAnswer
			json.Unmarshal(e, &c)
			parts.WriteString(c.Choices[0].Text)
		}
		if parts.String() != c.Text {
			t.Errorf("as a stream %q, as a document %q", parts.String(), c.Text)
		}
	})
}

func TestABatchIsAnsweredInItsOrder(t *testing.T) {
	both(t, func(t *testing.T, s *served) {
		var list []generated
		s.answer("/generate", `{"text":["one","two","three"],"sampling_params":{"temperature":0,"max_new_tokens":5,"n":2,"ignore_eos":true}}`, &list)
		if len(list) != 6 {
			t.Fatalf("%d", len(list))
		}
		for i, prompt := range []string{"one", "two", "three"} {
			var one generated
			s.answer("/generate", `{"text":`+quote(prompt)+`,"sampling_params":{"temperature":0,"max_new_tokens":5,"ignore_eos":true}}`, &one)
			if *list[2*i].Index != 2*i || list[2*i].Meta.Prompt != one.Meta.Prompt || list[2*i].Meta.Completion != 5 || s.s.cfg.Engine == "sim" && (list[2*i].Text != one.Text || list[2*i+1].Text != one.Text) {
				t.Errorf("%d: %+v, want %+v", i, list[2*i], one)
			}
		}
		var texts textAnswer
		s.answer("/v1/completions", `{"prompt":["a","b"],"max_tokens":3,"n":2,"temperature":1,"seed":1,"ignore_eos":true}`, &texts)
		if len(texts.Choices) != 4 || texts.Usage.Completion != 12 {
			t.Errorf("%+v", texts)
		}
		if texts.Choices[0].Text == texts.Choices[1].Text {
			t.Error("two choices of one prompt are the same")
		}
	})
}

func TestAnAnswerIsTheJSONOfItsSchema(t *testing.T) {
	s := real(t)
	const schema = `{"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer"},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age","tags"]}`
	for seed := range 3 {
		var c chatAnswer
		s.answer("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"max_tokens":400,"temperature":%d,"seed":%d,"response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":%s}}}`, seed, seed, schema), &c)
		var v struct {
			Name *string
			Age  *int64
			Tags []string
		}
		if err := json.Unmarshal([]byte(c.Choices[0].Message.Content), &v); err != nil || v.Name == nil || v.Age == nil || len(v.Tags) > 3 || *c.Choices[0].Finish != "stop" {
			t.Errorf("%q: %v", c.Choices[0].Message.Content, err)
		}
	}
	var g generated
	s.answer("/generate", `{"text":"x","sampling_params":{"max_new_tokens":300,"json_schema":"{\"enum\":[\"yes\",\"no\"]}"}}`, &g)
	if g.Text != `"yes"` && g.Text != `"no"` {
		t.Error(g.Text)
	}
}

func TestTokensAndTextAreEachOthersInverse(t *testing.T) {
	both(t, func(t *testing.T, s *served) {
		var tokens struct {
			Tokens []int32
			Count  int
			Max    int `json:"max_model_len"`
		}
		s.answer("/tokenize", `{"prompt":"héllo 漢字","add_special_tokens":false}`, &tokens)
		list, _ := json.Marshal(tokens.Tokens)
		var text struct{ Prompt, Text string }
		s.answer("/detokenize", `{"tokens":`+string(list)+`}`, &text)
		if strings.TrimPrefix(text.Text, " ") != "héllo 漢字" || text.Prompt != text.Text || tokens.Count != len(tokens.Tokens) || tokens.Max == 0 {
			t.Errorf("%+v %+v", tokens, text)
		}
		s.answer("/tokenize", `{"messages":[{"role":"user","content":"x"}]}`, &tokens)
		if tokens.Count == 0 {
			t.Error("a chat has no tokens")
		}
		var flushed struct{ Flushed bool }
		s.answer("/flush_cache", ``, &flushed)
	})
}
