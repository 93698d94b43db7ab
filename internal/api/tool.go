package api

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Tool is a function that the model may ask to be called.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of its arguments, an object; nil: it takes none
	Strict      bool            // the arguments must follow the schema
}

// ToolChoice is whether the answer may, must or must not be a call.
type ToolChoice uint8

const (
	ToolAuto     ToolChoice = iota // the model decides
	ToolNone                       // no calls: the model is told of no tools
	ToolRequired                   // one call at least, of Call.OneTool if that is set
)

// ToolCall is one call of a function, in a message or in an answer.
type ToolCall struct {
	ID, Name  string
	Arguments string // JSON as the model wrote it
}

// tools reads tools, tool_choice and parallel_tool_calls.
func (f *fields) tools(c *Call) {
	f.refuseUnless("functions", `it is obsolete: send tools, a list of {"type":"function","function":{…}}`, isEmpty)
	f.refuseUnless("function_call", `it is obsolete: send tool_choice, "none", "auto", "required" or {"type":"function","function":{"name":…}}`, isEmpty)
	c.Parallel = true
	f.flag("parallel_tool_calls", &c.Parallel)
	f.toolList(c)
	f.toolChoice(c)
	if c.ToolChoice == ToolNone {
		c.Tools = nil
	}
}

func (f *fields) toolList(c *Call) {
	v, ok := f.get("tools")
	if !ok {
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil {
		f.bad("tools", "%s is not a list", show(v))
		return
	}
	if len(list) > MaxTools {
		f.bad("tools", "%d tools are above the limit of %d", len(list), MaxTools)
		return
	}
	if len(v) > MaxToolsBytes {
		f.bad("tools", "%d bytes are above the limit of %d", len(v), MaxToolsBytes)
		return
	}
	at := map[string]int{}
	for i, raw := range list {
		g, ok := f.inner("tools["+strconv.Itoa(i)+"]", raw)
		if !ok {
			return
		}
		t := g.tool()
		if f.take(g); f.cause != nil {
			return
		}
		if first, twice := at[t.Name]; twice {
			f.bad("tools["+strconv.Itoa(i)+"].function.name", "%q is the name of tools[%d] too", t.Name, first)
			return
		}
		at[t.Name] = i
		c.Tools = append(c.Tools, t)
	}
}

// tool reads one of the list.
func (f *fields) tool() (t Tool) {
	var kind string
	if f.str("type", &kind); kind != "function" {
		f.bad("type", `%q is refused: only "function" is supported`, show([]byte(kind)))
		return t
	}
	v, ok := f.get("function")
	if !ok {
		f.bad("function", `missing: send {"name":…,"description":…,"parameters":{…}}`)
		return t
	}
	g, ok := f.inner("function", v)
	if !ok {
		return t
	}
	defer f.take(g)
	t.Name = g.functionName("name")
	g.str("description", &t.Description)
	g.flag("strict", &t.Strict)
	p, ok := g.get("parameters")
	if !ok {
		return t
	}
	var schema map[string]json.RawMessage
	switch {
	case len(p) > MaxToolSchema:
		g.bad("parameters", "%d bytes are above the limit of %d", len(p), MaxToolSchema)
	case depth(p) > MaxToolDepth:
		g.bad("parameters", "it is nested %d levels deep, above the limit of %d", depth(p), MaxToolDepth)
	case json.Unmarshal(p, &schema) != nil:
		g.bad("parameters", "%s is not a JSON schema of an object", show(p))
	case schema["type"] != nil && string(schema["type"]) != `"object"`:
		g.bad("parameters.type", `%s is refused: the arguments of a function are an "object"`, show(schema["type"]))
	default:
		t.Parameters = p
	}
	return t
}

// functionName reads a name as OpenAI allows it. Else a name could end the
// markup that it stands in.
func (f *fields) functionName(field string) (name string) {
	if _, ok := f.get(field); !ok {
		f.bad(field, "missing: send the function's name")
		return ""
	}
	f.str(field, &name)
	if !validName(name) && f.cause == nil {
		f.bad(field, "%q is not 1 to %d letters, digits, - and _", show([]byte(name)), MaxToolName)
	}
	return name
}

func validName(name string) bool {
	return name != "" && len(name) <= MaxToolName && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) < 0
}

func (f *fields) toolChoice(c *Call) {
	v, ok := f.get("tool_choice")
	if !ok || f.cause != nil {
		return
	}
	switch string(v) {
	case `"auto"`:
		return
	case `"none"`:
		c.ToolChoice = ToolNone
		return
	case `"required"`:
		c.ToolChoice = ToolRequired
	default:
		var named struct {
			Type     string `json:"type"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		}
		if v[0] != '{' || json.Unmarshal(v, &named) != nil || named.Type != "function" || named.Function.Name == "" {
			f.bad("tool_choice", `%s is none of "none", "auto", "required", {"type":"function","function":{"name":…}}`, show(v))
			return
		}
		c.ToolChoice, c.OneTool = ToolRequired, named.Function.Name
	}
	if len(c.Tools) == 0 {
		f.bad("tool_choice", "%s needs tools: the body has none", show(v))
		return
	}
	if c.OneTool == "" {
		return
	}
	names := make([]string, len(c.Tools))
	for i, t := range c.Tools {
		if names[i] = t.Name; t.Name == c.OneTool {
			return
		}
	}
	f.bad("tool_choice", "%q is none of the tools: %s", show([]byte(c.OneTool)), show([]byte(strings.Join(names, ", "))))
}

// inner returns the members of an object inside f's, whose complaints begin with name.
func (f *fields) inner(name string, raw []byte) (*fields, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		f.bad(name, "%s is not an object", show(raw))
		return nil, false
	}
	g := &fields{prefix: f.prefix + name + ".", values: make(map[string][]byte, len(m)), limits: f.limits}
	for k, v := range m {
		g.values[k] = v
	}
	return g, true
}

// take keeps g's complaint if there is none yet.
func (f *fields) take(g *fields) {
	if f.cause == nil {
		f.cause = g.cause
	}
}

// depth returns how deep the JSON text v is nested.
func depth(v []byte) (most int) {
	d := 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i = skipString(v, i) - 1
		case '{', '[':
			d++
			most = max(most, d)
		case '}', ']':
			d--
		}
	}
	return most
}
