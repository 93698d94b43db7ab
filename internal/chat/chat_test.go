package chat

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Three templates with the constructs that models of these families use.
const (
	chatml = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

	llama3 = `{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
`

	gemma3 = `{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}`
)

var talk = []api.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: " héllo "}, {Role: "assistant", Content: "hi"}, {Role: "user", Content: "{{ bye }}"}}

func TestCommonTemplatesRenderAsTheirModelsExpect(t *testing.T) {
	for _, x := range []struct{ name, template, want string }{
		{"chatml", chatml, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n héllo <|im_end|>\n<|im_start|>assistant\nhi<|im_end|>\n<|im_start|>user\n{{ bye }}<|im_end|>\n<|im_start|>assistant\n"},
		{"llama3", llama3, "<B><|start_header_id|>system<|end_header_id|>\n\nToday Date: 14 Nov 2023\n\nbe brief<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nhéllo<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{{ bye }}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"gemma3", gemma3, "<B><start_of_turn>user\nbe brief\n\nhéllo<end_of_turn>\n<start_of_turn>model\nhi<end_of_turn>\n<start_of_turn>user\n{{ bye }}<end_of_turn>\n<start_of_turn>model\n"},
	} {
		r, err := New(x.template, "<B>", "<E>")
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		got, err := r.Render(talk, nil, true, 1_700_000_000)
		if err != nil || got != x.want {
			t.Errorf("%s: %v\n got %q\nwant %q", x.name, err, got, x.want)
		}
		if got, _ := r.Render(talk, nil, false, 1_700_000_000); !strings.HasPrefix(x.want, got) || len(got) >= len(x.want) {
			t.Errorf("%s without a generation prompt: %q", x.name, got)
		}
	}
}

func TestATemplatesRefusalIsABadRequestWithItsWords(t *testing.T) {
	r, err := New(gemma3, "", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Render([]api.Message{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}}, nil, true, 0)
	var cause *room.Cause
	if !errors.As(err, &cause) || cause.Code != room.BadRequest || !strings.Contains(cause.Detail, "roles must alternate") {
		t.Errorf("err %v", err)
	}
}

func TestABrokenTemplateIsRefusedAtLoad(t *testing.T) {
	for _, s := range []string{"", "{% for %}", "{{ x", "{% if a %}"} {
		if _, err := New(s, "", ""); err == nil {
			t.Errorf("%q compiled", s)
		}
	}
}

func TestBlockTagsTakeTheirLineWithThem(t *testing.T) {
	for _, x := range []struct{ template, want string }{
		{"{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\nend\n", "a\nend"},
		{"x {% if true %}\ny{% endif %}", "x y"},
		{"  {%+ if true +%}\ny{% endif %}", "  \ny"},
		{"{# a '\" comment #}\n {{ '%}' }}\n{% set x = '%}\\n' %}\n{{ x }}", " %}\n%}\n"},
		{"  {% if true %}{% endif %} {% if true %}z{% endif %}", " z"},
	} {
		r, err := New(x.template, "", "")
		if err != nil {
			t.Errorf("%q: %v", x.template, err)
			continue
		}
		if got, err := r.Render([]api.Message{{Role: "user", Content: "a"}}, nil, true, 0); got != x.want || err != nil {
			t.Errorf("%q: %q %v, want %q", x.template, got, err, x.want)
		}
	}
}

func TestStrftimeKnowsPythonsDirectives(t *testing.T) {
	r, _ := New(`{{ strftime_now("%Y-%m-%d %-d %B %j %H:%M:%S 100%% %Q") }}`, "", "")
	if got, err := r.Render(nil, nil, true, 1_704_153_600); got != "2024-01-02 2 January 002 00:00:00 100% %Q" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

func TestTextDoesNotDependOnHowItsBytesWereSplit(t *testing.T) {
	fragment := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.SliceOfN(rapid.Byte(), 0, 6),
		rapid.SampledFrom([][]byte{{0xE2, 0x82}, {0xF0, 0x9F, 0x98}, {0xED, 0xA0, 0x80}, {0xC0, 0x80}, []byte("😀")}),
	)
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		for _, f := range rapid.SliceOf(fragment).Draw(t, "fragments") {
			all = append(all, f...)
		}
		var whole, split Detokenizer
		want := whole.Push(all) + whole.Flush()
		var got strings.Builder
		for rest := all; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			out := split.Push(rest[:n])
			if !utf8.ValidString(out) {
				t.Fatalf("half a character came out: %q", out)
			}
			if split.nheld > 3 {
				t.Fatalf("%d bytes are held back", split.nheld)
			}
			got.WriteString(out)
			rest = rest[n:]
		}
		got.WriteString(split.Flush())
		if got.String() != want {
			t.Fatalf("split %q, whole %q", got.String(), want)
		}
		if utf8.Valid(all) && want != string(all) {
			t.Fatalf("valid text was changed: %q to %q", all, want)
		}
	})
}

func TestACutCharacterIsOneReplacement(t *testing.T) {
	var d Detokenizer
	if got := d.Push([]byte("a\xF0\x9F\x98")); got != "a" {
		t.Errorf("%q", got)
	}
	if got := d.Flush() + d.Push([]byte("b")); got != "\uFFFDb" {
		t.Errorf("%q", got)
	}
	if got := d.Push([]byte("\xF0\x9F")) + d.Push([]byte("x\xFFy")); got != "\uFFFDx\uFFFDy" {
		t.Errorf("%q", got)
	}
}
