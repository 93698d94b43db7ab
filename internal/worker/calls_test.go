package worker

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/engine"
)

const weatherTool = `{"type":"function","function":{"name":"get_weather","description":"of a city","parameters":{"type":"object","properties":{"city":{"enum":["Bonn","Paris"]},"days":{"type":"integer"}},"required":["city","days"],"additionalProperties":false}}}`

type calling struct {
	ID, Type string
	Index    int
	Function struct{ Name, Arguments string }
}

type callAnswer struct {
	Choices []struct {
		Index   int
		Message struct {
			Content *string
			Calls   []calling `json:"tool_calls"`
		}
		Delta struct {
			Content *string
			Calls   []calling `json:"tool_calls"`
		}
		Finish *string                      `json:"finish_reason"`
		Logs   *struct{ Content []logprob } `json:"logprobs"`
	}
	Usage *usage
}

// gathered is what a stream or a document comes to for one choice.
type gathered struct {
	Text, Finish string
	Calls        []string // name(arguments)
	Logs         int
}

func (s *served) document(body string) []gathered {
	s.t.Helper()
	var a callAnswer
	s.answer("/v1/chat/completions", "{"+body+"}", &a)
	out := make([]gathered, len(a.Choices))
	for i, c := range a.Choices {
		out[i].Finish = *c.Finish
		if c.Message.Content != nil {
			out[i].Text = *c.Message.Content
		} else if len(c.Message.Calls) == 0 {
			s.t.Error("the content is null, and there is no call")
		}
		for _, x := range c.Message.Calls {
			if !strings.HasPrefix(x.ID, "call_") && len(x.ID) != 9 || x.Type != "function" {
				s.t.Errorf("%+v", x)
			}
			out[i].Calls = append(out[i].Calls, x.Function.Name+"("+x.Function.Arguments+")")
		}
		if c.Logs != nil {
			out[i].Logs = len(c.Logs.Content)
		}
	}
	return out
}

func (s *served) streamed(body string) []gathered {
	s.t.Helper()
	var out []gathered
	for _, e := range s.events("/v1/chat/completions", `{"stream":true,`+body+"}") {
		var a callAnswer
		if err := json.Unmarshal(e, &a); err != nil {
			s.t.Fatal(err)
		}
		for _, c := range a.Choices {
			for len(out) <= c.Index {
				out = append(out, gathered{})
			}
			g := &out[c.Index]
			if c.Delta.Content != nil {
				g.Text += *c.Delta.Content
			}
			for _, x := range c.Delta.Calls {
				if x.Index == len(g.Calls) {
					if x.ID == "" || x.Type != "function" || x.Function.Name == "" {
						s.t.Errorf("a call begins with %+v", x)
					}
					g.Calls = append(g.Calls, x.Function.Name+"(")
				} else if x.ID != "" || x.Function.Name != "" {
					s.t.Errorf("a call goes on with %+v", x)
				}
				g.Calls[x.Index] += x.Function.Arguments
			}
			if c.Finish != nil {
				g.Finish = *c.Finish
			}
			if c.Logs != nil {
				g.Logs += len(c.Logs.Content)
			}
		}
	}
	for i := range out {
		for j := range out[i].Calls {
			out[i].Calls[j] += ")"
		}
	}
	return out
}

// scripted gives the simulator's tokens other texts: those of one answer, in their
// order, are the parts of a script.
type scripted struct {
	engine.Engine
	tok *scriptedTokenizer
}

func (e *scripted) Tokenizer() engine.Tokenizer { return e.tok }

type scriptedTokenizer struct {
	engine.Tokenizer
	text map[engine.Token]string
}

func (t *scriptedTokenizer) Piece(x engine.Token) []byte {
	if text, ok := t.text[x]; ok {
		return []byte(text)
	}
	return t.Tokenizer.Piece(x)
}

// says makes the answer to body be text, in parts of n bytes, then the end.
func (s *served) says(body, text string, n int) string {
	s.t.Helper()
	p := s.s.parts.Load()
	if e, ok := p.engine.(*scripted); ok {
		p.engine = e.Engine
	}
	var parts []string
	for ; len(text) > n; text = text[n:] {
		parts = append(parts, text[:n])
	}
	parts = append(parts, text)
	body = fmt.Sprintf(`%s,"temperature":0,"max_tokens":%d,"tools":[%s]`, body, len(parts), weatherTool)
	var a struct {
		Choices []struct {
			Logs *struct{ Content []logprob } `json:"logprobs"`
		}
	}
	s.answer("/v1/chat/completions", `{"logprobs":true,`+body+"}", &a)
	e := &scripted{p.engine, &scriptedTokenizer{p.engine.Tokenizer(), map[engine.Token]string{}}}
	for i, l := range a.Choices[0].Logs.Content {
		ids, err := e.tok.Encode(l.Token, true, false)
		if err != nil || len(ids) != 1 || e.tok.text[ids[0]] != "" {
			s.t.Fatalf("%q cannot stand for a part of the script", l.Token)
		}
		e.tok.text[ids[0]] = parts[i]
	}
	p.engine = e
	s.t.Cleanup(func() { p.engine = e.Engine })
	return body
}

func TestCallsInAnAnswerAreToldAsCallsInAStreamAsInADocument(t *testing.T) {
	s := simulated(t)
	for i, x := range []struct{ says, text, finish, calls string }{
		{"Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>\n<tool_call>{\"name\":\"get_weather\",\"arguments\":{}}</tool_call>",
			"Let me look.", "length", `get_weather({"city": "Bonn"}) get_weather({})`},
		{"<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\":", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\":", "length", ""},
		{"No tools are needed.", "No tools are needed.", "length", ""},
	} {
		for _, n := range []int{7, 30} {
			body := s.says(fmt.Sprintf(`"messages":[{"role":"user","content":"%d %d"}]`, i, n), x.says, n)
			doc, stream := s.document(body), s.streamed(body)
			if !reflect.DeepEqual(doc, stream) {
				t.Errorf("as a document %+v, as a stream %+v", doc, stream)
			}
			if doc[0].Text != x.text || doc[0].Finish != x.finish || strings.Join(doc[0].Calls, " ") != x.calls {
				t.Errorf("%q: %+v", x.says, doc[0])
			}
			logs := s.document(body + `,"logprobs":true`)[0].Logs
			if got := s.streamed(body + `,"logprobs":true`)[0].Logs; got != logs || logs == 0 {
				t.Errorf("%d log probabilities in a stream, %d in a document", got, logs)
			}
			one := s.document(body + `,"parallel_tool_calls":false`)[0]
			if len(doc[0].Calls) > 0 && (len(one.Calls) != 1 || one.Finish != "tool_calls") {
				t.Errorf("one call was wanted: %+v", one)
			}
			if none := s.document(strings.Replace(body, `"tools"`, `"tool_choice":"none","tools"`, 1))[0]; len(none.Calls) != 0 {
				t.Errorf("no call was wanted: %+v", none)
			}
		}
	}
}

// named is a tokenizer whose tokens are control tokens with names.
type named struct {
	engine.Tokenizer
	names map[engine.Token]string
}

func (t named) Piece(engine.Token) []byte  { return nil }
func (t named) Name(x engine.Token) string { return t.names[x] }

type namedEngine struct {
	engine.Engine
	tok named
}

func (e namedEngine) Tokenizer() engine.Tokenizer { return e.tok }

func TestAControlTokenThatIsMarkupIsTextWhereCallsAreLookedFor(t *testing.T) {
	p := &parts{engine: namedEngine{tok: named{names: map[engine.Token]string{1: "[TOOL_CALLS]", 2: "</s>"}}}}
	c := &choice{p: p, call: &api.Call{}, calls: chat.NewCallParser(chat.FormMistral, nil, false, true)}
	if got := string(c.text(1)) + string(c.text(2)); got != "[TOOL_CALLS]" {
		t.Errorf("%q", got)
	}
	c.calls = nil
	if got := string(c.text(1)); got != "" {
		t.Errorf("without tools: %q", got)
	}
}

func TestACallThatIsNoneIsTextAndTheAnswerStopped(t *testing.T) {
	s := simulated(t)
	const call = `<tool_call>{"name":"get_weather","arguments":{}}</tool_call>`
	for i, x := range []struct{ says, text, finish string }{
		{"ok " + call + "END and more", "ok", "tool_calls"},
		{"ok " + call[:30] + "END and more", "ok " + call[:30], "stop"},
		{"ok <tool_call>{nothing}END and more", "ok <tool_call>{nothing}", "stop"},
	} {
		body := s.says(fmt.Sprintf(`"messages":[{"role":"user","content":"stops %d"}]`, i), x.says, 11) + `,"stop":"END"`
		doc := s.document(body)
		if stream := s.streamed(body); !reflect.DeepEqual(doc, stream) {
			t.Errorf("as a document %+v, as a stream %+v", doc, stream)
		}
		if doc[0].Text != x.text || doc[0].Finish != x.finish || (len(doc[0].Calls) == 1) != (x.finish == "tool_calls") {
			t.Errorf("%q: %+v", x.says, doc[0])
		}
	}
}

func TestARequiredCallIsAValidOneWithArgumentsOfItsSchema(t *testing.T) {
	s := real(t)
	tools := `"messages":[{"role":"user","content":"Weather?"}],"max_tokens":300,"tools":[` + weatherTool + `,{"type":"function","function":{"name":"now"}}]`
	for _, x := range []struct {
		choice string
		least  int
	}{{`"required"`, 1}, {`{"type":"function","function":{"name":"get_weather"}}`, 1}} {
		for seed := range 2 {
			body := fmt.Sprintf(`%s,"seed":%d,"temperature":%d,"tool_choice":%s,"parallel_tool_calls":%v`, tools, seed, seed, x.choice, seed > 0)
			doc := s.document(body)
			if stream := s.streamed(body); !reflect.DeepEqual(doc, stream) {
				t.Errorf("as a document %+v, as a stream %+v", doc, stream)
			}
			if doc[0].Finish != "tool_calls" || len(doc[0].Calls) < x.least || doc[0].Text != "" {
				t.Errorf("%s: %+v", body, doc[0])
			}
			for _, c := range doc[0].Calls {
				arguments, of := strings.CutPrefix(strings.TrimSuffix(c, ")"), "get_weather(")
				var v struct {
					City string
					Days *int64
				}
				if err := json.Unmarshal([]byte(arguments), &v); of && (err != nil || v.City != "Bonn" && v.City != "Paris" || v.Days == nil) || !of && !strings.HasPrefix(c, "now({") {
					t.Errorf("%s: %v", c, err)
				}
			}
		}
	}
	if several := s.document(tools + `,"tool_choice":"required","n":3,"seed":1`); len(several) != 3 || len(several[2].Calls) == 0 {
		t.Errorf("%+v", several)
	}
	if cut := s.document(tools + `,"tool_choice":{"type":"function","function":{"name":"get_weather"}},"seed":1,"stop":"city"`)[0]; cut.Finish != "stop" {
		t.Errorf("a call was cut, and the answer ended by %s: %+v", cut.Finish, cut)
	}
	either := s.document(tools + `,"seed":4,"response_format":{"type":"json_schema","json_schema":{"schema":{"enum":[1]}}}`)[0]
	if either.Text != "1" && len(either.Calls) == 0 {
		t.Errorf("neither a call nor the schema's JSON: %+v", either)
	}
	if status, text := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}}}]}`); status != 400 || !strings.Contains(text, "tools[0].function.parameters: the schema at /properties/a/pattern") {
		t.Errorf("%d %s", status, text)
	}
}

func TestEveryFormOfCallsIsHeldByItsGrammarAndFoundAgain(t *testing.T) {
	s := real(t)
	p := s.s.parts.Load()
	old := p.chat
	defer func() { p.chat = old }()
	const turns = `{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role + m.content }}{% endfor %}`
	for _, marks := range []string{"<tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[TOOL_CALLS][ARGS]"} {
		p.chat = mustTemplate(t, marks+turns)
		body := `"messages":[{"role":"user","content":"Weather?"}],"max_tokens":400,"seed":1,"tool_choice":"required","tools":[` + weatherTool + `,{"type":"function","function":{"name":"get_weather_now"}}]`
		doc := s.document(body)
		if stream := s.streamed(body); !reflect.DeepEqual(doc, stream) {
			t.Errorf("%s: as a document %+v, as a stream %+v", marks, doc, stream)
		}
		if doc[0].Finish != "tool_calls" || doc[0].Text != "" || len(doc[0].Calls) == 0 {
			t.Errorf("%s: %+v", marks, doc[0])
		}
		either := s.document(strings.Replace(body, `"tool_choice":"required"`, `"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"name":{"enum":["x"]}},"required":["name"]}}}`, 1))[0]
		var v struct{ Name string }
		if err := json.Unmarshal([]byte(either.Text), &v); len(either.Calls) == 0 && (err != nil || v.Name != "x") {
			t.Errorf("%s: neither a call nor the schema's JSON: %+v", marks, either)
		}
	}
}

func TestAConversationWithCallsAndTheirAnswersGoesOn(t *testing.T) {
	both(t, func(t *testing.T, s *served) {
		talk := `"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Bonn\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"21"}]`
		if got := s.document(talk + `,"max_tokens":4,"tools":[` + weatherTool + `]`); len(got) != 1 || got[0].Finish == "" {
			t.Errorf("%+v", got)
		}
		var with, without struct{ Count int }
		s.answer("/tokenize", `{`+talk+`}`, &without)
		s.answer("/tokenize", `{`+talk+`,"tools":[`+weatherTool+`]}`, &with)
		if with.Count <= without.Count {
			t.Errorf("%d tokens with tools, %d without", with.Count, without.Count)
		}
	})
}
