package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// object is a JSON object that remembers its keys' order: a schema's properties
// are written in the order it names them.
type object struct {
	keys   []string
	values map[string]any
}

func (o *object) get(key string) (any, bool) {
	v, ok := o.values[key]
	return v, ok
}

// decode reads one JSON value: *object, []any, string, json.Number, bool or nil.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := value(d, 0)
	if err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return v, nil
}

func value(d *json.Decoder, depth int) (any, error) {
	if depth > 4*MaxDepth { // a schema takes several levels for one of its text
		return nil, fmt.Errorf("nested deeper than %d levels", 4*MaxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := &object{values: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			k := key.(string)
			if _, twice := o.values[k]; !twice {
				o.keys = append(o.keys, k)
			}
			o.values[k] = v
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := value(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return t, nil
}

// text returns v as JSON in its shortest form.
func text(v any) string {
	var b bytes.Buffer
	write(&b, v)
	return b.String()
}

func write(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case *object:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			write(b, k)
			b.WriteString(": ")
			write(b, v.values[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			write(b, x)
		}
		b.WriteByte(']')
	case string:
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // a string cannot fail
		b.Truncate(b.Len() - 1)
	default:
		x, _ := json.Marshal(v) // numbers, booleans, null cannot fail
		b.Write(x)
	}
}

// literal writes s as a GBNF string.
func literal(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7F:
			fmt.Fprintf(&b, `\x%02X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
