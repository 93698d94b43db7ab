package grammar

import "fmt"

// The library follows every way to read a text at once, and no call of it can be
// stopped. So a schema must not allow a number of ways that grows with the text:
// alternatives that begin alike, nested in one another, double it at each level.
const (
	maxWays         = 64
	maxAlternatives = 512
)

// alternative is one thing a schema may be, once anyOf, $ref and lists of types
// are looked through.
type alternative struct {
	begins  byte    // '{', '[', '"', '0' for numbers, 't', 'n'
	o       *object // nil for a literal
	schemas []any   // inside it
}

// unambiguous refuses a schema whose text could be read in too many ways.
func (w *writer) unambiguous() error {
	alts := map[*object][]alternative{}
	var order []*object
	todo := []any{w.root}
	for len(todo) > 0 {
		o, ok := todo[len(todo)-1].(*object)
		todo = todo[:len(todo)-1]
		if !ok || alts[o] != nil {
			continue
		}
		var list []alternative
		if err := w.alternatives(o, map[*object]bool{}, &list); err != nil {
			return err
		}
		alts[o] = list
		order = append(order, o)
		for _, a := range list {
			todo = append(todo, a.schemas...)
		}
	}
	alike := map[*object]map[byte]bool{} // groups of alternatives that stay alike
	for _, o := range order {
		alike[o] = w.alike(alts[o])
		for _, a := range alts[o] {
			if !alike[o][a.begins] && !a.mixed() {
				continue
			}
			for _, s := range a.schemas {
				if reaches(alts, s, o) {
					return fmt.Errorf("the schema recurses through alternatives that begin alike: give each a first required property with a const of its own")
				}
			}
		}
	}
	ways := map[*object]int{}
	for changed := true; changed; {
		changed = false
		for _, o := range order {
			sums := map[byte]int{}
			for _, a := range alts[o] {
				most := 1
				for _, s := range a.schemas {
					if c, ok := s.(*object); ok {
						most = max(most, ways[c])
					}
				}
				if a.mixed() {
					most *= 2
				}
				if alike[o][a.begins] {
					sums[a.begins] += most
				} else {
					sums[a.begins] = max(sums[a.begins], most)
				}
			}
			for _, n := range sums {
				if n > maxWays {
					return fmt.Errorf("the schema allows a text to be read in more than %d ways: it nests alternatives that begin alike", maxWays)
				}
				if n > ways[o] {
					ways[o], changed = n, true
				}
			}
		}
	}
	return nil
}

// alternatives lists what o may be.
func (w *writer) alternatives(o *object, open map[*object]bool, list *[]alternative) error {
	if open[o] {
		return fmt.Errorf("the schema refers to itself without a value between")
	}
	open[o] = true
	defer delete(open, o)
	if len(*list) > maxAlternatives {
		return fmt.Errorf("the schema has more than %d alternatives in one place", maxAlternatives)
	}
	if ref, ok := o.get("$ref"); ok {
		v, _ := w.point(ref)
		if c, ok := v.(*object); ok {
			return w.alternatives(c, open, list)
		}
		return nil // the writer says what is wrong, or it is true
	}
	if x, ok := o.get("const"); ok {
		*list = append(*list, alternative{begins: begin(x)})
		return nil
	}
	if x, ok := o.get("enum"); ok {
		values, _ := x.([]any)
		seen := map[byte]bool{}
		for _, v := range values { // literals: nothing is nested in them
			if b := begin(v); !seen[b] {
				seen[b] = true
				*list = append(*list, alternative{begins: b})
			}
		}
		return nil
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		x, ok := o.get(k)
		if !ok {
			continue
		}
		schemas, _ := x.([]any)
		for _, s := range schemas {
			if c, ok := s.(*object); ok {
				if err := w.alternatives(c, open, list); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, t := range typesOf(o) {
		a := alternative{begins: '"', o: o}
		switch t {
		case "number", "integer":
			a.begins = '0'
		case "boolean":
			a.begins = 't'
		case "null":
			a.begins = 'n'
		case "array":
			a.begins = '['
			if x, ok := o.get("items"); ok {
				a.schemas = append(a.schemas, x)
			}
		case "object":
			a.begins = '{'
			if p, ok := o.values["properties"].(*object); ok {
				for _, k := range p.keys {
					a.schemas = append(a.schemas, p.values[k])
				}
			}
			if x, ok := o.get("additionalProperties"); ok {
				a.schemas = append(a.schemas, x)
			}
		}
		*list = append(*list, a)
	}
	return nil
}

// mixed says whether a key of the object may be a named and a free one.
func (a alternative) mixed() bool {
	if a.begins != '{' || a.o == nil {
		return false
	}
	p, _ := a.o.values["properties"].(*object)
	extra, ok := a.o.get("additionalProperties")
	return p != nil && len(p.keys) > 0 && ok && extra != false
}

// alike returns the beginnings that several alternatives share and that their
// first property does not tell apart.
func (w *writer) alike(alts []alternative) map[byte]bool {
	out, count := map[byte]bool{}, map[byte]int{}
	for _, a := range alts {
		count[a.begins]++
	}
	for b, n := range count {
		out[b] = n > 1
	}
	if !out['{'] {
		return out
	}
	values, free := map[string]map[string]bool{}, map[string]bool{}
	for _, a := range alts {
		if a.begins != '{' {
			continue
		}
		key, texts, ok := w.first(a.o)
		if !ok || free[key] || texts == nil && values[key] != nil {
			return out
		}
		if texts == nil {
			free[key] = true
			continue
		}
		if values[key] == nil {
			values[key] = map[string]bool{}
		}
		for _, x := range texts {
			if values[key][x] {
				return out
			}
			values[key][x] = true
		}
	}
	out['{'] = false
	return out
}

// first returns the key that an object must begin with, and the values it may
// have, nil if they are not listed.
func (w *writer) first(o *object) (key string, texts []string, ok bool) {
	if o == nil {
		return "", nil, false
	}
	p, _ := o.values["properties"].(*object)
	required, _ := o.values["required"].([]any)
	if p == nil || len(p.keys) == 0 {
		return "", nil, false
	}
	if extra, given := o.get("additionalProperties"); given && extra != false {
		return "", nil, false
	}
	key = p.keys[0]
	for _, r := range required {
		ok = ok || r == key
	}
	if s, isObject := p.values[key].(*object); isObject {
		if ref, refers := s.get("$ref"); refers {
			v, _ := w.point(ref)
			if s, isObject = v.(*object); !isObject {
				return key, nil, ok
			}
		}
		if x, has := s.get("const"); has {
			texts = []string{text(x)}
		} else if list, has := s.values["enum"].([]any); has {
			for _, x := range list {
				texts = append(texts, text(x))
			}
		}
	}
	return key, texts, ok
}

// reaches says whether the schema target is inside s, or s itself.
func reaches(alts map[*object][]alternative, s any, target *object) bool {
	seen := map[*object]bool{}
	todo := []any{s}
	for len(todo) > 0 {
		o, ok := todo[len(todo)-1].(*object)
		todo = todo[:len(todo)-1]
		if !ok || seen[o] {
			continue
		}
		seen[o] = true
		if o == target {
			return true
		}
		for _, a := range alts[o] {
			todo = append(todo, a.schemas...)
		}
	}
	return false
}

func begin(v any) byte {
	switch c := text(v)[0]; c {
	case '{', '[', '"', 'n':
		return c
	case 't', 'f':
		return 't'
	}
	return '0'
}
