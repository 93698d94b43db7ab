package api

import (
	"encoding/json"
	"strconv"
)

// toolCalls reads what an assistant's message asked to be called.
func (f *fields) toolCalls() []ToolCall {
	v, ok := f.get("tool_calls")
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil {
		f.bad("tool_calls", "%s is not a list", show(v))
		return nil
	}
	if len(list) > MaxToolCalls {
		f.bad("tool_calls", "%d calls are above the limit of %d", len(list), MaxToolCalls)
		return nil
	}
	calls := make([]ToolCall, 0, len(list))
	for i, raw := range list {
		g, ok := f.inner("tool_calls["+strconv.Itoa(i)+"]", raw)
		if !ok {
			return nil
		}
		calls = append(calls, g.toolCall())
		if f.take(g); f.cause != nil {
			return nil
		}
	}
	return calls
}

func (f *fields) toolCall() (c ToolCall) {
	kind := "function"
	if f.str("type", &kind); kind != "function" {
		f.bad("type", `%q is refused: only "function" is supported`, show([]byte(kind)))
		return c
	}
	c.ID = f.callID("id")
	v, ok := f.get("function")
	if !ok {
		f.bad("function", `missing: send {"name":…,"arguments":"{…}"}`)
		return c
	}
	g, ok := f.inner("function", v)
	if !ok {
		return c
	}
	defer f.take(g)
	c.Name = g.functionName("name")
	g.str("arguments", &c.Arguments) // absent: a call without arguments
	return c
}

func (f *fields) callID(field string) (id string) {
	if f.str(field, &id); id == "" {
		f.bad(field, "missing: send the id of the call")
	}
	if len(id) > MaxCallID {
		f.bad(field, "%d bytes are above the limit of %d", len(id), MaxCallID)
	}
	return id
}

// answers checks that a tool's message answers a call before it, as OpenAI does,
// and adds the function's name, which some templates want.
func (f *fields) answers(m *Message, called map[string]string) {
	for _, c := range m.Calls {
		called[c.ID] = c.Name
	}
	if m.Role != "tool" || f.cause != nil {
		return
	}
	name, ok := called[m.CallID]
	if !ok {
		f.bad("tool_call_id", "%q is the id of no call in tool_calls of an assistant message before this one", show([]byte(m.CallID)))
		return
	}
	m.Name = name
}
