package grammar

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatASchemaCannotSayIsRefusedWithItsPlace(t *testing.T) {
	nested := strings.Repeat(`{"type":"array","items":`, 100) + `{}` + strings.Repeat("}", 100)
	doubling := `{"$ref":"#/$defs/a0","$defs":{"end":{"type":"string"}`
	for i := range 20 {
		doubling += fmt.Sprintf(`,"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1)
	}
	doubling += `,"a20":{"type":"string"}}}`
	for _, x := range []struct{ schema, want string }{
		{`[]`, "not an object"},
		{`{`, "not JSON"},
		{`{} {}`, "more than one"},
		{`{"type":"strange"}`, `at /type: "strange" is no type`},
		{`{"type":[]}`, "at /type: the list of types is empty"},
		{`{"type":"object","properties":{"a/b":{"type":"string","pattern":"x"}}}`, "at /properties/a~1b/pattern: this keyword is not supported"},
		{`{"type":"object","properties":{"a":1}}`, "at /properties/a: 1 is not a schema"},
		{`{"type":"object","properties":[1]}`, "at /properties: not an object"},
		{`{"type":"object","properties":{},"required":["x"]}`, `at /required/0: "x" is none of the properties`},
		{`{"anyOf":[]}`, "at /anyOf: not a list"},
		{`{"anyOf":[{"type":"number","minimum":1}]}`, "at /anyOf/0/minimum: "},
		{`{"allOf":[{},{}]}`, "at /allOf: only one"},
		{`{"enum":[]}`, "at /enum: "},
		{`{"$ref":"http://x"}`, "at /$ref: "},
		{`{"$ref":"#/nothing"}`, "points at nothing"},
		{`{"$ref":"#"}`, "refers to itself"},
		{`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`, "refers to itself"},
		{`{"type":"array","minItems":3,"maxItems":1}`, "at /minItems: 3 is above maxItems 1"},
		{`{"type":"array","maxItems":1e9}`, "above the limit of"},
		{`{"type":"array","maxItems":-1}`, "is not a count"},
		{nested, "nested deeper"},
		{doubling, "more than 512 alternatives"},
		{`{"anyOf":[{"type":"array","maxItems":5,"items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"}}]}`, "begin alike"},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"additionalProperties":{"$ref":"#"}}`, "begin alike"},
		{`{"type":"string","title":"` + strings.Repeat("x", MaxSchema) + `"}`, "the limit is"},
	} {
		out, err := Schema([]byte(x.schema))
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%.80s: %v, want %q\n%.200s", x.schema, err, x.want, out)
		}
	}
}

func TestOrdinarySchemasBecomeGrammars(t *testing.T) {
	for _, s := range []string{
		`{}`, `{"type":"object"}`, `{"type":["string","null"],"format":"date","description":"x"}`,
		`{"anyOf":[{"type":"object","properties":{"kind":{"const":"leaf"}},"required":["kind"]},{"type":"object","properties":{"kind":{"const":"node"},"l":{"$ref":"#"},"r":{"$ref":"#"}},"required":["kind","l","r"]}]}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/definitions/p"}}},"required":["a"],"additionalProperties":false,"definitions":{"p":{"type":"object","properties":{"x":{"type":"number"}}}}}`,
		`{"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"b":{}}}]}`,
		`{"type":"array","items":true,"uniqueItems":false}`,
	} {
		if _, err := Schema([]byte(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestCheckBoundsWhatTheLibraryWouldWriteOut(t *testing.T) {
	for _, s := range []string{"", "root = x", "root ::= \"a\"{3,1}", "root ::= \"a\"{99999}", "root ::= " + strings.Repeat("(", 65) + strings.Repeat(")", 65),
		"root ::= \"" + strings.Repeat("a", 5000) + "\"{5000}", strings.Repeat("a ::= b\n", MaxRules+1), "root ::= \"\x00\"", "root ::= \"a\"{x}", "root ::= a{"} {
		if Check(s) == nil {
			t.Errorf("%.60q passed", s)
		}
	}
	if err := Check(JSON); err != nil {
		t.Error(err)
	}
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`))
	f.Add([]byte(`{"anyOf":[{"enum":[1,"x"]},{"type":["array","null"],"maxItems":3}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := Schema(b); err == nil && Check(out) != nil {
			t.Fatal(Check(out))
		}
	})
}
