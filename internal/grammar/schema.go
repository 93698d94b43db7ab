package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The rules that every JSON grammar ends with. Space between tokens is bounded,
// or a model that is unsure writes line feeds until its last token.
const common = `ws ::= ( " " | "\n" [ \t]{0,20} )?
string ::= "\"" char* "\""
char ::= [^"\\\x7F\x00-\x1F] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} )
integer ::= "-"? ( "0" | [1-9] [0-9]{0,15} )
number ::= integer ( "." [0-9]{1,15} )? ( [eE] [-+]? [0-9]{1,3} )?
boolean ::= "true" | "false"
null ::= "null"
value ::= object | array | string | number | boolean | null
member ::= string ws ":" ws value
object ::= "{" ws "}" | "{" ws member ( ws "," ws member )* ws "}"
array ::= "[" ws "]" | "[" ws value ( ws "," ws value )* ws "]"
`

// JSON is the grammar of any JSON object.
const JSON = "root ::= object\n" + common

// Schema returns the grammar of the values that a JSON schema allows. An error
// names the place in the schema.
//
// Honoured: type (one or several), properties in their order, required,
// additionalProperties (as OpenAI's strict mode has it, absent means false where
// there are properties; an object without properties is any object), items,
// minItems, maxItems, minLength, maxLength, enum, const, anyOf, oneOf (as
// anyOf), allOf of one, $ref within the schema, true. Ignored, because they
// describe and do not bind: format, title, description, default, examples and
// whatever is unknown. Refused: what binds and is none of these.
func Schema(raw []byte) (string, error) {
	w := &writer{}
	body, err := w.document(raw)
	if err != nil {
		return "", err
	}
	return w.finish(body)
}

// binding are keywords that bind and are not built.
var binding = []string{"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems",
	"minProperties", "maxProperties", "patternProperties", "propertyNames", "contains", "minContains", "maxContains", "not",
	"if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "prefixItems", "additionalItems",
	"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}

// writer turns schemas into rules and keeps the first complaint.
type writer struct {
	root  any
	rules []string
	refs  map[string]string // pointer → rule, entered before it is written: schemas may recurse
	nrefs int               // of all schemas of this grammar
	size  int
	err   error
}

func (w *writer) bad(at, format string, args ...any) string {
	if w.err == nil {
		if at == "" {
			at = "/"
		}
		w.err = fmt.Errorf("the schema at %.200s: %.200s", at, fmt.Sprintf(format, args...))
	}
	return `""`
}

// rule writes body as a rule of its own and returns its name.
func (w *writer) rule(body string) string {
	name := "r" + strconv.Itoa(len(w.rules))
	w.rules = append(w.rules, name+" ::= "+body)
	if w.size += len(body); w.size > MaxText || len(w.rules) > MaxRules {
		w.bad("", "it becomes more than %d rules or %d bytes", MaxRules, MaxText)
	}
	return name
}

// schema returns an expression without a top-level alternative.
func (w *writer) schema(v any, at string, depth int) string {
	if w.err != nil {
		return `""`
	}
	if depth > MaxDepth {
		return w.bad(at, "nested deeper than %d levels", MaxDepth)
	}
	o, ok := v.(*object)
	if !ok {
		if v == true {
			return "value"
		}
		return w.bad(at, "%s is not a schema", text(v))
	}
	for _, k := range binding {
		if x, ok := o.get(k); ok && !(k == "uniqueItems" && x == false) && !(k == "minProperties" && x == json.Number("0")) {
			return w.bad(at+"/"+k, "this keyword is not supported")
		}
	}
	if ref, ok := o.get("$ref"); ok {
		return w.ref(ref, at+"/$ref", depth)
	}
	if x, ok := o.get("const"); ok {
		return literal(text(x))
	}
	if x, ok := o.get("enum"); ok {
		list, ok := x.([]any)
		if !ok || len(list) == 0 {
			return w.bad(at+"/enum", "not a list of values")
		}
		var alts []string
		for _, x := range list {
			alts = append(alts, literal(text(x)))
		}
		return either(alts)
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		if x, ok := o.get(k); ok {
			return w.several(k, x, at+"/"+k, depth)
		}
	}
	return w.types(o, at, depth)
}

func (w *writer) several(k string, x any, at string, depth int) string {
	list, ok := x.([]any)
	if !ok || len(list) == 0 {
		return w.bad(at, "not a list of schemas")
	}
	if k == "allOf" && len(list) > 1 {
		return w.bad(at, "only one schema in allOf is supported")
	}
	var alts []string
	for i, s := range list {
		alts = append(alts, w.schema(s, at+"/"+strconv.Itoa(i), depth+1))
	}
	return either(alts)
}

func (w *writer) types(o *object, at string, depth int) string {
	list := typesOf(o)
	if list == nil {
		return "value"
	}
	if len(list) == 0 {
		return w.bad(at+"/type", "the list of types is empty")
	}
	var alts []string
	for _, t := range list {
		switch t {
		case "string":
			alts = append(alts, w.str(o, at))
		case "number", "integer", "boolean", "null":
			alts = append(alts, t.(string))
		case "array":
			alts = append(alts, w.array(o, at, depth))
		case "object":
			alts = append(alts, w.object(o, at, depth))
		default:
			return w.bad(at+"/type", "%s is no type", text(t))
		}
	}
	return either(alts)
}

// typesOf returns the types a schema names or implies, nil for any value.
func typesOf(o *object) []any {
	t, ok := o.get("type")
	if !ok {
		_, props := o.get("properties")
		_, items := o.get("items")
		switch {
		case props:
			t = "object"
		case items:
			t = "array"
		default:
			return nil
		}
	}
	if list, ok := t.([]any); ok {
		return list
	}
	return []any{t}
}

func (w *writer) str(o *object, at string) string {
	lo, hi, any := w.bounds(o, at, "minLength", "maxLength")
	if any {
		return "string"
	}
	return `"\"" char` + repeat(lo, hi) + ` "\""`
}

func (w *writer) array(o *object, at string, depth int) string {
	item := "value"
	if x, ok := o.get("items"); ok {
		item = w.schema(x, at+"/items", depth+1)
	}
	lo, hi, _ := w.bounds(o, at, "minItems", "maxItems")
	if hi == 0 {
		return `"[" ws "]"`
	}
	item = w.rule(item)
	more := hi
	if hi > 0 {
		more = hi - 1
	}
	some := `"[" ws ` + item + ` ( ws "," ws ` + item + ` )` + repeat(max(lo-1, 0), more) + ` ws "]"`
	if lo > 0 {
		return some
	}
	return either([]string{`"[" ws "]"`, some})
}

// bounds reads a pair of bounds; hi is −1 without an upper one.
func (w *writer) bounds(o *object, at, least, most string) (lo, hi int, none bool) {
	read := func(k string, def int) int {
		x, ok := o.get(k)
		if !ok {
			return def
		}
		num, _ := x.(json.Number)
		f, err := num.Float64()
		if err != nil || f < 0 || f != float64(int(f)) {
			w.bad(at+"/"+k, "%s is not a count", text(x))
			return def
		}
		if f > MaxRepeat {
			w.bad(at+"/"+k, "%s is above the limit of %d", text(x), MaxRepeat)
			return def
		}
		return int(f)
	}
	lo, hi = read(least, 0), read(most, -1)
	if hi >= 0 && lo > hi {
		w.bad(at+"/"+least, "%d is above %s %d", lo, most, hi)
	}
	return lo, hi, lo == 0 && hi < 0
}

func (w *writer) object(o *object, at string, depth int) string {
	props := &object{}
	if x, ok := o.get("properties"); ok {
		if props, ok = x.(*object); !ok {
			return w.bad(at+"/properties", "not an object")
		}
	}
	required := map[string]bool{}
	if x, ok := o.get("required"); ok {
		list, ok := x.([]any)
		if !ok {
			return w.bad(at+"/required", "not a list of names")
		}
		for i, x := range list {
			name, ok := x.(string)
			if !ok || !slices.Contains(props.keys, name) {
				return w.bad(at+"/required/"+strconv.Itoa(i), "%s is none of the properties", text(x))
			}
			required[name] = true
		}
	}
	extra := ""
	more, given := o.get("additionalProperties")
	switch {
	case given && more == false, !given && len(props.keys) > 0:
	case !given, more == true:
		extra = "member"
	default:
		extra = w.rule(`string ws ":" ws ` + w.schema(more, at+"/additionalProperties", depth+1))
	}
	// From the last property to the first: what may follow when nothing was
	// written yet (first), and what when something was (then).
	first, then := `""`, `""`
	if extra != "" {
		then = w.rule(`( ws "," ws ` + extra + ` )*`)
		first = w.rule(`( ` + extra + ` ` + then + ` )?`)
	}
	for i := len(props.keys) - 1; i >= 0 && w.err == nil; i-- {
		name := props.keys[i]
		kv := literal(text(name)) + ` ws ":" ws ` + w.schema(props.values[name], at+"/properties/"+escape(name), depth+1)
		kv = w.rule(kv)
		if required[name] {
			first, then = w.rule(kv+" "+then), w.rule(`ws "," ws `+kv+" "+then)
		} else {
			first, then = w.rule(kv+" "+then+" | "+first), w.rule(`ws "," ws `+kv+" "+then+" | "+then)
		}
	}
	return `"{" ws ` + first + ` ws "}"`
}

// ref returns the rule of a schema elsewhere in the text.
func (w *writer) ref(x any, at string, depth int) string {
	p, ok := x.(string)
	if !ok || p != "#" && !strings.HasPrefix(p, "#/") {
		return w.bad(at, "%s does not point into this schema", text(x))
	}
	if name, ok := w.refs[p]; ok {
		return name
	}
	v, ok := w.point(p)
	if !ok {
		return w.bad(at, "%s points at nothing", text(x))
	}
	name := "ref" + strconv.Itoa(w.nrefs)
	w.nrefs++
	w.refs[p] = name
	body := w.schema(v, strings.TrimPrefix(p, "#"), depth+1)
	w.rules = append(w.rules, name+" ::= "+body)
	return name
}

// point follows a pointer within the schema.
func (w *writer) point(ref any) (v any, found bool) {
	p, ok := ref.(string)
	if !ok {
		return nil, false
	}
	v = w.root
	for _, part := range strings.Split(p, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		found := false
		switch y := v.(type) {
		case *object:
			v, found = y.get(part)
		case []any:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(y) {
				v, found = y[i], true
			}
		}
		if !found {
			return nil, false
		}
	}
	return v, true
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

func either(alts []string) string {
	if len(alts) == 1 {
		return alts[0]
	}
	return "( " + strings.Join(alts, " | ") + " )"
}

func repeat(lo, hi int) string {
	switch {
	case hi < 0 && lo == 0:
		return "*"
	case hi < 0:
		return "{" + strconv.Itoa(lo) + ",}"
	}
	return "{" + strconv.Itoa(lo) + "," + strconv.Itoa(hi) + "}"
}
