package chat

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// fromJSON returns JSON as a template's value, keys in their order. ok is false for
// what is no JSON, or nested too deep for a template to walk.
func fromJSON(text string) (v jinja.Value, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 0)
	return v, err == nil && !d.More()
}

func readValue(d *json.Decoder, depth int) (jinja.Value, error) {
	if depth > maxNesting {
		return jinja.None(), fmt.Errorf("nested deeper than %d levels", maxNesting)
	}
	t, err := d.Token()
	if err != nil {
		return jinja.None(), err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			list := []jinja.Value{}
			for d.More() {
				v, err := readValue(d, depth+1)
				if err != nil {
					return v, err
				}
				list = append(list, v)
			}
			_, err = d.Token()
			return jinja.NewList(list), err
		}
		out := jinja.NewDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return out, err
			}
			v, err := readValue(d, depth+1)
			if err != nil {
				return v, err
			}
			out.AsDict().Set(key.(string), v)
		}
		_, err = d.Token()
		return out, err
	case string:
		return jinja.NewString(t), nil
	case bool:
		return jinja.NewBool(t), nil
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := t.Float64()
		return jinja.NewFloat(f), err
	}
	return jinja.None(), nil
}

// The engine looks for filters among its own first, so ours needs a name of its own.
const tojsonName = "tojson_as_trained"

var tojsonUse = regexp.MustCompile(`\|\s*tojson\b`)

// ownFilters makes a template use our filters.
func ownFilters(src string) string {
	var b strings.Builder
	for at := 0; ; {
		i, end := nextTag(src, at)
		if i < 0 {
			b.WriteString(src[at:])
			return b.String()
		}
		b.WriteString(src[at:i])
		b.WriteString(tojsonUse.ReplaceAllString(src[i:end], "|"+tojsonName))
		at = end
	}
}

// tojson is the filter as the trainers' engine has it. This engine's own sorts
// keys, leaves out the spaces and escapes < and >, which no model was trained on.
var tojson = jinja.NewCallable(tojsonName, func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.NewString(""), nil
	}
	indent := ""
	if n, ok := named["indent"]; ok && n.IsInt() {
		indent = strings.Repeat(" ", int(max(0, min(n.AsInt(), 16))))
	}
	var b strings.Builder
	writeValue(&b, args[0], indent, "\n")
	return jinja.NewString(b.String()), nil
})

// writeValue writes v as Python's json.dumps does. line is what begins a line here,
// where there is an indent.
func writeValue(b *strings.Builder, v jinja.Value, indent, line string) {
	deeper, comma := line+indent, ", "
	if indent != "" {
		comma = ","
	}
	begin := func(i int) {
		if i > 0 {
			b.WriteString(comma)
		}
		if indent != "" {
			b.WriteString(deeper)
		}
	}
	end := func(n int, bracket byte) {
		if indent != "" && n > 0 {
			b.WriteString(line)
		}
		b.WriteByte(bracket)
	}
	switch {
	case v.IsDict():
		b.WriteByte('{')
		for i, k := range v.AsDict().Keys {
			begin(i)
			writeString(b, k)
			b.WriteString(": ")
			writeValue(b, v.AsDict().Data[k], indent, deeper)
		}
		end(v.AsDict().Len(), '}')
	case v.IsList():
		b.WriteByte('[')
		for i, x := range v.AsList().Items {
			begin(i)
			writeValue(b, x, indent, deeper)
		}
		end(v.AsList().Len(), ']')
	case v.IsString():
		writeString(b, v.AsString())
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		writeFloat(b, v.AsFloat())
	default:
		b.WriteString("null")
	}
}

// writeFloat writes f as Python does: with a point or an exponent.
func writeFloat(b *strings.Builder, f float64) {
	format := byte('f')
	if x := math.Abs(f); x != 0 && (x < 1e-4 || x >= 1e16) {
		format = 'e'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if format == 'f' && !strings.Contains(s, ".") {
		s += ".0"
	}
	b.WriteString(s)
}

func writeString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if c < ' ' {
				fmt.Fprintf(b, `\u%04x`, c)
			} else {
				b.WriteByte(c)
			}
		}
	}
	b.WriteByte('"')
}
