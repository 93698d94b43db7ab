package grammar

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxCalls bounds the calls of one answer that a grammar asks for: a small model
// that may always call once more does so until its last token.
const MaxCalls = 16

// Function is one that an answer may call.
type Function struct {
	Name   string
	Schema []byte // of its arguments, a JSON object; nil: it takes none
	Loose  bool   // where Schema cannot be honoured any object will do
	At     string // what an error calls the schema, e.g. "tools[0].function.parameters"
}

// Calls says how calls are written, and what an answer may be.
type Calls struct {
	Open, Join, Close string // before the first call, between two, after the last

	// Named is a call whose name stands in front of its arguments, between Join or
	// Open and this; "": it is an object with the key "name" and the key Key.
	Named string
	Key   string

	Functions []Function
	Several   bool   // more than one call
	Or        []byte // a JSON schema: the answer may be such a value instead of calls; nil: it may not
}

// Grammar returns the grammar of such answers. An error names the place in the
// schema.
func (c Calls) Grammar() (string, error) {
	w := &writer{}
	alts := make([]string, 0, len(c.Functions))
	for i, f := range c.Functions {
		body, err := w.arguments(f)
		if err != nil {
			return "", err
		}
		if c.Named != "" {
			alts = append(alts, literal(f.Name+c.Named)+" "+body)
		} else {
			alts = append(alts, literal(text(f.Name))+` ws "," ws `+literal(text(c.Key))+` ws ":" ws `+body)
		}
		alts[i] = w.rule(alts[i])
	}
	call := either(alts)
	if c.Named == "" {
		call = `"{" ws "\"name\"" ws ":" ws ` + call + ` ws "}"`
	}
	call = w.rule(call)
	root := literal(c.Open) + " " + call
	if c.Several {
		root += " ( " + literal(c.Join) + " " + call + " ){0," + strconv.Itoa(MaxCalls-1) + "}"
	}
	if c.Close != "" {
		root += " " + literal(c.Close)
	}
	if c.Or != nil {
		or, err := w.document(c.Or)
		if err != nil {
			return "", err
		}
		root = either([]string{root, or})
	}
	if w.err != nil {
		return "", w.err
	}
	out, err := w.finish(root)
	if err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	return out, nil
}

// arguments returns the expression of a function's arguments.
func (w *writer) arguments(f Function) (string, error) {
	if f.Schema == nil {
		return `"{" ws "}"`, nil
	}
	before := *w // a schema that is refused leaves nothing behind
	body, err := w.document(f.Schema)
	switch {
	case err == nil && body == "value": // it does not even say that they are an object
		return "object", nil
	case err == nil:
		return body, nil
	case f.Loose:
		*w = before
		return "object", nil
	}
	return "", fmt.Errorf("%s: %w", f.At, err)
}

// document returns the expression of one whole schema.
func (w *writer) document(raw []byte) (string, error) {
	if len(raw) > MaxSchema {
		return "", fmt.Errorf("the schema has %d bytes, the limit is %d", len(raw), MaxSchema)
	}
	root, err := decode(raw)
	if err != nil {
		return "", fmt.Errorf("the schema is not JSON: %v", err)
	}
	if _, ok := root.(*object); !ok {
		return "", fmt.Errorf("the schema is not an object")
	}
	w.root, w.refs = root, map[string]string{}
	body := w.schema(root, "", 0)
	if w.err == nil {
		w.err = w.unambiguous()
	}
	return body, w.err
}

// finish returns the grammar whose root is an expression.
func (w *writer) finish(root string) (string, error) {
	var b strings.Builder
	b.WriteString("root ::= " + root + "\n")
	for _, r := range w.rules {
		b.WriteString(r + "\n")
	}
	b.WriteString(common)
	out := b.String()
	if err := Check(out); err != nil {
		return "", fmt.Errorf("the schema is too large: %w", err)
	}
	return out, nil
}
