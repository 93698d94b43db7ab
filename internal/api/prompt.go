package api

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// messages reads a chat.
func (f *fields) messages(c *Call) {
	v, ok := f.get("messages")
	if !ok {
		f.bad("messages", "missing: send at least one message")
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil {
		f.bad("messages", "%s is not a list", show(v))
		return
	}
	if len(list) == 0 {
		f.bad("messages", "the list is empty: send at least one message")
		return
	}
	if len(list) > MaxMessages {
		f.bad("messages", "%d messages are above the limit of %d", len(list), MaxMessages)
		return
	}
	c.Messages = make([]Message, 0, len(list))
	called := map[string]string{} // the calls so far: id → function
	for i, raw := range list {
		g, ok := f.inner("messages["+strconv.Itoa(i)+"]", raw)
		if !ok {
			return
		}
		m := g.message()
		g.answers(&m, called)
		c.Messages = append(c.Messages, m)
		if g.cause != nil {
			f.take(g)
			return
		}
	}
}

func (f *fields) message() Message {
	var m Message
	f.str("role", &m.Role)
	switch m.Role {
	case "system", "user", "assistant":
	case "developer": // OpenAI's newer name; templates know the older one
		m.Role = "system"
	case "tool":
		m.CallID = f.callID("tool_call_id")
	case "function":
		f.bad("role", `"function" is refused, it is obsolete: send the role "tool" with a tool_call_id`)
	default:
		f.bad("role", `%q is none of "system", "user", "assistant", "tool"`, show([]byte(m.Role)))
	}
	if m.Role == "assistant" {
		m.Calls = f.toolCalls()
	} else {
		f.refuseUnless("tool_calls", "only an assistant's message has calls", isEmpty)
	}
	f.refuseUnless("function_call", "it is obsolete: send tool_calls", isEmpty)
	f.refuseUnless("audio", "audio is not supported", isEmpty)
	v, ok := f.get("content")
	if !ok {
		if len(m.Calls) == 0 { // beside calls there need be no text
			f.bad("content", "missing: send a string or a list of text parts")
		}
		return m
	}
	if v[0] == '[' {
		m.Content = f.parts(v)
	} else {
		f.str("content", &m.Content)
	}
	return m
}

// parts joins text parts with nothing between, as their order is the text.
func (f *fields) parts(v []byte) string {
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(v, &parts) != nil {
		f.bad("content", "%s is not a list of text parts", show(v))
		return ""
	}
	var b strings.Builder
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			f.bad("content["+strconv.Itoa(i)+"]", `type %q is refused: only {"type":"text","text":…} is supported`, show([]byte(p.Type)))
			return ""
		}
		b.WriteString(*p.Text)
	}
	return b.String()
}

// prompt reads a prompt that may be text or ids, or a list of those.
func (f *fields) prompt(c *Call, name string) {
	v, ok := f.get(name)
	if !ok {
		f.bad(name, "missing: send a string or a list of token ids")
		return
	}
	list, batch := f.list(name, v)
	if !batch {
		p := f.one(name, v)
		c.Text, c.IDs = p.Text, p.IDs
		return
	}
	c.Batch = f.batch(name, list)
	if len(c.Batch) == 1 { // the form does not show in OpenAI's answer
		c.Text, c.IDs, c.Batch = c.Batch[0].Text, c.Batch[0].IDs, nil
	}
}

// list splits a list of prompts; ok is false for a single prompt, also one of ids.
func (f *fields) list(name string, v []byte) (list []json.RawMessage, ok bool) {
	if v[0] != '[' {
		return nil, false
	}
	if first := v[skipSpace(v, 1)]; first != '"' && first != '[' {
		return nil, false
	}
	if json.Unmarshal(v, &list) != nil {
		f.bad(name, "%s is not a list of prompts", show(v))
	}
	if len(list) > MaxPrompts {
		f.bad(name, "%d prompts are above the limit of %d", len(list), MaxPrompts)
		list = nil
	}
	return list, true
}

func (f *fields) batch(name string, list []json.RawMessage) []Prompt {
	out := make([]Prompt, len(list))
	for i, v := range list {
		out[i] = f.one(name+"["+strconv.Itoa(i)+"]", bytes.TrimSpace(v))
	}
	return out
}

func (f *fields) one(name string, v []byte) (p Prompt) {
	if v[0] == '[' {
		p.IDs = f.ids(name, v)
		return p
	}
	if json.Unmarshal(v, &p.Text) != nil || v[0] != '"' {
		f.bad(name, "%s is neither a string nor a list of token ids", show(v))
	} else if p.Text == "" {
		f.bad(name, "the prompt is empty: send at least one character")
	}
	return p
}

// ids reads a list of token ids. Whether the model has them is the worker's to say.
func (f *fields) ids(name string, v []byte) []int32 {
	var ids []int64
	if json.Unmarshal(v, &ids) != nil || bytes.Contains(v, []byte("null")) { // null would read as 0
		f.bad(name, "%s is not a list of token ids", show(v))
		return nil
	}
	if len(ids) == 0 {
		f.bad(name, "the list of token ids is empty: send at least one")
		return nil
	}
	out := make([]int32, len(ids))
	for i, t := range ids {
		if t < 0 || t > math.MaxInt32 {
			f.bad(name+"["+strconv.Itoa(i)+"]", "%d is not a token id: ids are 0 to %d", t, math.MaxInt32)
			return nil
		}
		out[i] = int32(t)
	}
	return out
}

// generate reads SGLang's own body.
func (f *fields) generate(c *Call) {
	text, hasText := f.get("text")
	ids, hasIDs := f.get("input_ids")
	name, v := "text", text
	if hasIDs {
		name, v = "input_ids", ids
	}
	switch list, batch := []json.RawMessage(nil), false; {
	case hasText && hasIDs:
		f.bad("input_ids", "text is there too: send one of both")
	case !hasText && !hasIDs:
		f.bad("text", "missing: send text or input_ids")
	default:
		if list, batch = f.list(name, v); batch {
			c.Batch = f.batch(name, list)
		} else if p := f.one(name, v); hasText && p.IDs != nil {
			f.bad("text", "%s is not a string: send ids as input_ids", show(v))
		} else {
			c.Text, c.IDs = p.Text, p.IDs
		}
	}
	f.generateLogprobs(c)
	f.refuseUnless("return_hidden_states", "hidden states are not supported", isFalse)
	for _, name := range []string{"input_embeds", "image_data", "audio_data", "video_data", "lora_path"} {
		f.refuseUnless(name, "only text is supported", isEmpty)
	}
	g := &fields{prefix: "sampling_params.", values: map[string][]byte{}, limits: f.limits}
	if v, ok := f.get("sampling_params"); ok {
		var m map[string]json.RawMessage
		if json.Unmarshal(v, &m) != nil {
			f.bad("sampling_params", "%s is not an object", show(v))
			return
		}
		for k, v := range m {
			g.values[k] = v
		}
		if _, ok := g.values["sampling_seed"]; !ok {
			if v, ok := g.values["seed"]; ok {
				g.values["sampling_seed"] = v
			}
		}
	}
	g.sampling(c, "max_new_tokens", "max_tokens", "sampling_seed")
	if f.cause == nil {
		f.cause = g.cause
	}
}

// generateLogprobs reads SGLang's fields. logprob_start_len is −1 by default: no
// tokens of the prompt.
func (f *fields) generateLogprobs(c *Call) {
	for _, name := range []string{"return_logprob", "top_logprobs_num", "logprob_start_len"} {
		if v, ok := f.get(name); ok && v[0] == '[' {
			f.bad(name, "%s is a list: one value for the whole batch is supported", show(v))
		}
	}
	f.flag("return_logprob", &c.Logprobs)
	f.flag("return_text_in_logprobs", &c.LogprobText)
	var top int64
	f.integer("top_logprobs_num", 0, MaxTopLogprobs, &top)
	from := int64(-1)
	f.integer("logprob_start_len", -1, math.MaxInt32, &from)
	f.refuseUnless("token_ids_logprob", "log probabilities of chosen ids are not supported", isEmpty)
	if !c.Logprobs {
		return
	}
	c.Params.Logprobs = int(top) + 1
	if from >= 0 {
		c.PromptLogprobs, c.PromptFrom = int(top)+1, int32(from)
	}
}
