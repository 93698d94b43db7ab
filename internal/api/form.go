package api

import (
	"encoding/json"

	"github.com/tandem-llm/tandem/internal/grammar"
)

// form reads what an answer's text is held to: OpenAI's response_format, and
// the names that SGLang and vLLM have for the same.
func (f *fields) form(c *Call) {
	if v, ok := f.get("response_format"); ok {
		f.responseFormat(c, v)
	}
	for _, name := range []string{"json_schema", "guided_json"} {
		if v, ok := f.get(name); ok && !isEmpty(v) {
			var s string
			if json.Unmarshal(v, &s) == nil { // SGLang has the schema as a string
				v = []byte(s)
			}
			f.schema(c, name, v)
		}
	}
	for _, name := range []string{"regex", "structural_tag", "guided_regex", "guided_choice"} {
		f.refuseUnless(name, "only a JSON schema is supported (json_schema, response_format)", isEmpty)
	}
	for _, name := range []string{"ebnf", "grammar", "guided_grammar"} {
		// The library follows an ambiguous grammar for ever, and cannot be stopped.
		f.refuseUnless(name, "grammars of a client's own are not run: send a JSON schema (json_schema, response_format)", isEmpty)
	}
}

func (f *fields) responseFormat(c *Call, v []byte) {
	var format struct {
		Type       string `json:"type"`
		JSONSchema *struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if json.Unmarshal(v, &format) != nil {
		f.bad("response_format", `%s is not an object like {"type":"json_object"}`, show(v))
		return
	}
	switch format.Type {
	case "text":
	case "json_object":
		c.Params.Grammar, c.Schema = grammar.JSON, []byte(`{"type":"object"}`)
	case "json_schema":
		if format.JSONSchema == nil || len(format.JSONSchema.Schema) == 0 {
			f.bad("response_format.json_schema.schema", `missing: send {"type":"json_schema","json_schema":{"name":…,"schema":{…}}}`)
			return
		}
		f.schema(c, "response_format.json_schema.schema", format.JSONSchema.Schema)
	default:
		f.bad("response_format", `type %q is none of "text", "json_object", "json_schema"`, show([]byte(format.Type)))
	}
}

func (f *fields) schema(c *Call, name string, v []byte) {
	g, err := grammar.Schema(v)
	if err != nil {
		f.bad(name, "%v", err)
		return
	}
	c.Params.Grammar, c.Schema = g, v
}
