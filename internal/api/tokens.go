package api

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/tandem-llm/tandem/internal/room"
)

// TokenizeCall is the body of POST /tokenize: a prompt or messages.
type TokenizeCall struct {
	Text     string
	Messages []Message // nil: Text
	Tools    []Tool    // that the messages are rendered with
	Special  bool      // add_special_tokens, true by default: BOS in front of a prompt
}

// ParseTokenize reads it.
func ParseTokenize(body []byte) (*TokenizeCall, *room.Cause) {
	f, cause := newFields(body, Limits{})
	if cause != nil {
		return nil, cause
	}
	t := &TokenizeCall{Special: true}
	_, chat := f.get("messages")
	v, text := f.get("prompt")
	if !text {
		v, text = f.get("text")
	}
	switch {
	case chat && text:
		f.bad("prompt", "messages are there too: send one of both")
	case chat:
		var c Call
		f.messages(&c)
		f.tools(&c)
		t.Messages, t.Tools = c.Messages, c.Tools
	case !text:
		f.bad("prompt", "missing: send prompt or messages")
	case json.Unmarshal(v, &t.Text) != nil:
		f.bad("prompt", "%s is not a string", show(v))
	}
	f.flag("add_special_tokens", &t.Special)
	f.refuseUnless("add_generation_prompt", "an answer always begins a new turn", isTrue)
	return t, f.cause
}

// ParseDetokenize reads the body of POST /detokenize.
func ParseDetokenize(body []byte) (ids []int32, cause *room.Cause) {
	f, cause := newFields(body, Limits{})
	if cause != nil {
		return nil, cause
	}
	v, ok := f.get("tokens")
	if !ok {
		f.bad("tokens", "missing: send a list of token ids")
	} else {
		ids = f.ids("tokens", v)
	}
	return ids, f.cause
}

// newFields reads an object's members, of duplicates the last, as everywhere.
func newFields(body []byte, limits Limits) (*fields, *room.Cause) {
	if !utf8.Valid(body) {
		return nil, room.Because(room.BadRequest, "the body is not valid UTF-8: send JSON in UTF-8")
	}
	members, _, cause := Members(body)
	if cause != nil {
		return nil, cause
	}
	if !json.Valid(body) {
		var v json.RawMessage
		return nil, room.Because(room.BadRequest, "the body is not JSON: %v", json.Unmarshal(body, &v))
	}
	f := &fields{values: make(map[string][]byte, len(members)), limits: limits.withDefaults()}
	for _, m := range members {
		f.values[m.Key] = m.Value
	}
	return f, nil
}
