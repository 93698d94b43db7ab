package chat

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/tandem-llm/tandem/internal/api"
)

// How a model is told of tools whose template says nothing of them, or writes calls
// in a form that is not known here. The form is that of Hermes.
const (
	fallbackBegin = `You may call functions to answer. The functions are described here, one in each line, with a JSON schema of their arguments:
<tools>
`
	fallbackEnd = `</tools>
To call a function, answer with its name and its arguments as a JSON object between these tags, and with nothing else:
<tool_call>
{"name": <name>, "arguments": <arguments>}
</tool_call>`
)

// toolValue returns a tool as templates know it, which is as OpenAI's API has it.
func toolValue(t api.Tool) jinja.Value {
	f := jinja.NewDict()
	f.AsDict().Set("name", jinja.NewString(t.Name))
	if t.Description != "" {
		f.AsDict().Set("description", jinja.NewString(t.Description))
	}
	schema := string(t.Parameters)
	if schema == "" {
		schema = `{"type":"object","properties":{}}`
	}
	parameters, ok := fromJSON(schema)
	if !ok { // the API refuses what is nested that deep
		parameters = jinja.NewDict()
	}
	f.AsDict().Set("parameters", parameters)
	v := jinja.NewDict()
	v.AsDict().Set("type", jinja.NewString("function"))
	v.AsDict().Set("function", f)
	return v
}

// messageValue returns a message as templates know it.
func (r *Renderer) messageValue(m api.Message) jinja.Value {
	v := jinja.NewDict()
	d := v.AsDict()
	d.Set("role", jinja.NewString(m.Role))
	d.Set("content", jinja.NewString(m.Content))
	if m.Role == "tool" {
		d.Set("tool_call_id", jinja.NewString(r.callID(m.CallID)))
		d.Set("name", jinja.NewString(m.Name))
	}
	if len(m.Calls) == 0 {
		return v
	}
	list := make([]jinja.Value, len(m.Calls))
	for i, c := range m.Calls {
		f := jinja.NewDict()
		f.AsDict().Set("name", jinja.NewString(c.Name))
		f.AsDict().Set("arguments", r.arguments(c.Arguments))
		list[i] = jinja.NewDict()
		list[i].AsDict().Set("id", jinja.NewString(r.callID(c.ID)))
		list[i].AsDict().Set("type", jinja.NewString("function"))
		list[i].AsDict().Set("function", f)
	}
	d.Set("tool_calls", jinja.NewList(list))
	return v
}

// arguments returns a call's arguments, as an object where the template wants one
// and they are one.
func (r *Renderer) arguments(text string) jinja.Value {
	if text == "" {
		text = "{}"
	}
	if !r.quoted {
		if v, ok := fromJSON(text); ok && v.IsDict() {
			return v
		}
	}
	return jinja.NewString(text)
}

// callID returns an id as the template takes it: Mistral's take nine letters and
// digits. Another id becomes such a one, always the same.
func (r *Renderer) callID(id string) string {
	if r.form != FormMistral && r.form != FormMistralArgs || len(id) == mistralIDLen && strings.IndexFunc(id, func(c rune) bool { return c >= 0x80 || c == '_' || c == '-' || !nameByte(byte(c)) }) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return base32.StdEncoding.EncodeToString(sum[:])[:mistralIDLen]
}

// written returns a chat without calls and tool messages, which are written out as
// the fallback text has them.
func written(messages []api.Message) []api.Message {
	var out []api.Message
	answering := false // the last message is the tools'
	for _, m := range messages {
		switch {
		case m.Role == "tool":
			text := "<tool_response>\n" + m.Content + "\n</tool_response>"
			if answering {
				out[len(out)-1].Content += "\n" + text
			} else {
				out = append(out, api.Message{Role: "user", Content: text})
			}
			answering = true
			continue
		case len(m.Calls) > 0:
			text := []string{}
			if m.Content != "" {
				text = append(text, m.Content)
			}
			for _, c := range m.Calls {
				text = append(text, hermesOpen+"\n"+callText(c)+"\n"+hermesClose)
			}
			out = append(out, api.Message{Role: m.Role, Content: strings.Join(text, "\n")})
		case answering && m.Role == "user": // two of them in a row would be refused by some templates
			out[len(out)-1].Content += "\n" + m.Content
		default:
			out = append(out, m)
		}
		answering = false
	}
	return out
}

// callText returns a call as a JSON object.
func callText(c api.ToolCall) string {
	var b strings.Builder
	b.WriteString(`{"name": `)
	writeString(&b, c.Name)
	b.WriteString(`, "arguments": `)
	if v, ok := fromJSON(c.Arguments); ok {
		writeValue(&b, v, "", "")
	} else if c.Arguments == "" {
		b.WriteString("{}")
	} else {
		writeString(&b, c.Arguments)
	}
	b.WriteByte('}')
	return b.String()
}

// described returns the text that tells a model of tools.
func described(tools []api.Tool) string {
	var b strings.Builder
	b.WriteString(fallbackBegin)
	for _, t := range tools {
		writeValue(&b, toolValue(t), "", "")
		b.WriteByte('\n')
	}
	b.WriteString(fallbackEnd)
	return b.String()
}

// instructed puts text before all else: into the system message, or a new one,
// or, for templates that know none, into the first message.
func instructed(messages []api.Message, text string, system bool) []api.Message {
	out := append([]api.Message(nil), messages...)
	if len(out) > 0 && (out[0].Role == "system" || !system) {
		out[0].Content += "\n\n" + text
		if !system {
			out[0].Content = text + "\n\n" + messages[0].Content
		}
		return out
	}
	return append([]api.Message{{Role: "system", Content: text}}, out...)
}

// oneByOne parts messages with several calls, for templates that know one in each:
// every call with its answer behind it.
func oneByOne(messages []api.Message) []api.Message {
	var out []api.Message
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if len(m.Calls) < 2 {
			out = append(out, m)
			continue
		}
		answers := map[string]api.Message{}
		last := i
		for last+1 < len(messages) && messages[last+1].Role == "tool" {
			last++
			answers[messages[last].CallID] = messages[last]
		}
		for n, c := range m.Calls {
			one := api.Message{Role: m.Role, Calls: []api.ToolCall{c}}
			if n == 0 {
				one.Content = m.Content
			}
			out = append(out, one)
			if a, ok := answers[c.ID]; ok {
				out = append(out, a)
			}
		}
		i = last
	}
	return out
}
