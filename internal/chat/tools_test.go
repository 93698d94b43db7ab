package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// Short templates that do with tools what those of the families do.
const (
	toolsQwen = `{% if tools %}<|im_start|>system
# Tools
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
Answer within <tool_call></tool_call><|im_end|>
{% endif %}{% for message in messages %}{% if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}{% if message.content %}
{{ message.content }}{% endif %}{% for tool_call in message.tool_calls %}{% set tool_call = tool_call.function %}
<tool_call>
{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
	toolsLlama = `{{ bos_token }}{% if tools is not none %}Respond with {"name": function name, "parameters": dictionary}.
{% for t in tools %}{{ t | tojson(indent=4) }}

{% endfor %}{% endif %}{% for message in messages %}{% if 'tool_calls' in message %}{% if message.tool_calls|length != 1 %}{{ raise_exception("This model only supports single tool-calls at once!") }}{% endif %}{% set tool_call = message.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>

{"name": "{{ tool_call.name }}", "parameters": {{ tool_call.arguments | tojson }}}<|eot_id|>{% elif message.role == "tool" %}<|start_header_id|>ipython<|end_header_id|>

{{ message.content | tojson }}<|eot_id|>{% else %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content }}<|eot_id|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}`
	toolsMistral = `{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for message in messages %}{% if message.role == "user" %}[INST]{{ message.content }}[/INST]{% elif message.tool_calls is defined %}[TOOL_CALLS][{% for c in message.tool_calls %}{% if c.id|length != 9 %}{{ raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{% endif %}{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]</s>{% elif message.role == "tool" %}[TOOL_RESULTS]{"content": {{ message.content }}, "call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]{% else %}{{ message.content }}</s>{% endif %}{% endfor %}`
	// wants arguments as the string that the API has
	toolsQuoted = `{% for t in tools %}{{ t.function.name }}<tool_call>{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + ' ' + c.function.arguments }}{% endfor %};{% endfor %}`
)

var (
	weather = []api.Tool{{Name: "get_weather", Description: "of a <city>", Parameters: json.RawMessage(`{"type":"object","properties":{"unit":{"enum":["C","F"]},"city":{"type":"string"}},"required":["city"]}`)}}
	asked   = []api.Message{{Role: "user", Content: "Weather?"},
		{Role: "assistant", Calls: []api.ToolCall{{ID: "call_1", Name: "get_weather", Arguments: `{"unit":"C","city":"Bonn"}`}}},
		{Role: "tool", CallID: "call_1", Name: "get_weather", Content: "21"}}
)

const weatherJSON = `{"type": "function", "function": {"name": "get_weather", "description": "of a <city>", "parameters": {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}, "city": {"type": "string"}}, "required": ["city"]}}}`

func TestTemplatesGetToolsAndCallsAsTheirModelsExpectThem(t *testing.T) {
	for _, x := range []struct {
		name, template string
		form           Form
		want           []string
	}{
		{"qwen", toolsQwen, FormHermes, []string{"<tools>" + weatherJSON + "</tools>", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"unit\": \"C\", \"city\": \"Bonn\"}}\n</tool_call>", "<tool_response>\n21\n</tool_response>"}},
		{"llama", toolsLlama, FormLlama, []string{"{\n    \"type\": \"function\",\n    \"function\": {\n        \"name\": \"get_weather\"", "{\"name\": \"get_weather\", \"parameters\": {\"unit\": \"C\", \"city\": \"Bonn\"}}<|eot_id|>", "ipython<|end_header_id|>\n\n\"21\"<|eot_id|>"}},
		{"mistral", toolsMistral, FormMistral, []string{"[AVAILABLE_TOOLS][" + weatherJSON + "][/AVAILABLE_TOOLS]", `[TOOL_CALLS][{"name": "get_weather", "arguments": {"unit": "C", "city": "Bonn"}, "id": "`}},
		{"quoted", toolsQuoted, FormHermes, []string{`assistant:get_weather {"unit":"C","city":"Bonn"};tool:21;`}},
	} {
		r, err := New(x.template, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if !r.native || !r.turns || r.form != x.form {
			t.Errorf("%s: %+v", x.name, r)
		}
		text, err := r.Render(asked, weather, true, 0)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		for _, want := range x.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", x.name, text, want)
			}
		}
	}
}

func TestATemplateWithoutToolsGetsThemAsText(t *testing.T) {
	for _, template := range []string{chatml, llama3, gemma3, Fallback, `{% if tools %}{{ tools | tojson }}<function=x>{% endif %}` + chatml} {
		r, err := New(template, "", "")
		if err != nil {
			t.Fatal(err)
		}
		text, err := r.Render(append(asked, api.Message{Role: "user", Content: "And now?"}), weather, true, 0)
		if err != nil || r.Form() != FormHermes {
			t.Fatal(err)
		}
		for _, want := range []string{"<tools>\n" + weatherJSON + "\n</tools>", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"unit\": \"C\", \"city\": \"Bonn\"}}\n</tool_call>", "<tool_response>\n21\n</tool_response>\nAnd now?"} {
			if !strings.Contains(text, want) {
				t.Errorf("%.40s: %q lacks %q", template, text, want)
			}
		}
	}
}

func TestATemplateWithoutASystemRoleGetsToolsInTheFirstMessage(t *testing.T) {
	r, err := New(`{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception("no system") }}{% endif %}[{{ m.content }}]{% endfor %}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.Render(asked, weather, true, 0)
	if err != nil || !strings.HasPrefix(text, "[You may call functions") || !strings.Contains(text, "Weather?]") {
		t.Errorf("%q %v", text, err)
	}
}

func TestSeveralCallsArePartedForATemplateThatKnowsOne(t *testing.T) {
	r, _ := New(toolsLlama, "", "")
	two := []api.Message{{Role: "user", Content: "q"},
		{Role: "assistant", Content: "both", Calls: []api.ToolCall{{ID: "1", Name: "f", Arguments: `{"a":1}`}, {ID: "2", Name: "g"}}},
		{Role: "tool", CallID: "2", Name: "g", Content: "two"}, {Role: "tool", CallID: "1", Name: "f", Content: "one"}}
	text, err := r.Render(two, nil, true, 0)
	at := func(s string) int { return strings.Index(text, s) }
	if err != nil || at(`"f", "parameters": {"a": 1}`) < 0 || at(`"one"`) < at(`{"a": 1}`) || at(`"g", "parameters": {}`) < at(`"one"`) || at(`"two"`) < at(`"g"`) {
		t.Errorf("%q %v", text, err)
	}
}

func TestMistralsTemplatesGetIdsOfNineLetters(t *testing.T) {
	r, _ := New(toolsMistral, "", "")
	for id, same := range map[string]bool{"abcDEF123": true, "call_1": false, "abc_-f123": false} {
		if got := r.callID(id); len(got) != 9 || (got == id) != same || r.callID(id) != got {
			t.Errorf("%s: %s", id, got)
		}
	}
}

func TestAGrammarForCallsNamesTheSchemaThatCannotBeHonoured(t *testing.T) {
	bad := api.Tool{Name: "g", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}`)}
	for _, template := range []string{toolsQwen, toolsLlama, toolsMistral, "[TOOL_CALLS][ARGS]{{ tools | tojson }}" + chatml} {
		r, err := New(template, "", "")
		if err != nil {
			t.Fatal(err)
		}
		call := &api.Call{Tools: append(weather[:1:1], bad), ToolChoice: api.ToolRequired, Parallel: true}
		if cause := r.Constrain(call); cause == nil || cause.Code != room.BadRequest || !strings.HasPrefix(cause.Detail, "tools[1].function.parameters: the schema at /properties/a/pattern: ") {
			t.Errorf("%v", cause)
		}
		call.OneTool = "get_weather"
		if cause := r.Constrain(call); cause != nil || call.Params.Grammar == "" {
			t.Errorf("%v", cause)
		}
		call = &api.Call{Tools: call.Tools, Parallel: true}
		if cause := r.Constrain(call); cause != nil || call.Params.Grammar != "" {
			t.Errorf("%v", cause)
		}
		call.Schema = []byte(`{"type":"object","properties":{"x":{"type":"integer"}}}`)
		if cause := r.Constrain(call); cause != nil || call.Params.Grammar == "" {
			t.Errorf("%v", cause)
		}
	}
}
