package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// told is what an answer's pieces come to: its text, then each call as name(arguments).
func told(pieces []Piece) (text string, calls []string) {
	for _, p := range pieces {
		switch {
		case p.Text != "":
			text += p.Text
		case p.Begins:
			calls = append(calls, p.Name+"(")
		default:
			calls[p.Call] += p.Arguments
		}
	}
	for i := range calls {
		calls[i] += ")"
	}
	return text, calls
}

// parsed pushes a text in parts that end at the cuts.
func parsed(form Form, eager, several bool, text string, cuts ...int) (string, []string) {
	p := NewCallParser(form, []string{"f", "get_weather"}, eager, several)
	var out []Piece
	from := 0
	for _, at := range append(cuts, len(text)) {
		out = append(out, p.Push(text[from:at])...)
		from = at
	}
	out = append(out, p.Flush()...)
	if p.Decided() != len(text) {
		panic(fmt.Sprintf("%d of %d bytes are decided at the end of %q", p.Decided(), len(text), text))
	}
	return told(out)
}

var answers = []struct {
	form    Form
	in      string
	text    string
	calls   string // joined by a space
	instead string // the text where calls are told as they are written; "": the same
}{
	{FormHermes, "plain <b>text</b> \n", "plain <b>text</b> \n", "", ""},
	{FormHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"</tool_call>\"]}}\n</tool_call>", "", `f({"a": [1, "}\"</tool_call>"]})`, ""},
	{FormHermes, "Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"arguments\":{\"é\":\"漢\"},\"name\":\"get_weather\"}\n</tool_call>\n", "Let me see.", `f({}) get_weather({"é":"漢"})`, ""},
	{FormHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", `f({})`, ""}, // some models leave the end out
	{FormHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_", "", `f({})`, ""},
	{FormHermes, "<tool_call>{\"name\":\"f\"}</tool_call> done", " done", `f({})`, ""},
	{FormHermes, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "", `f({"a":1})`, ""},
	{FormHermes, "<<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "<", `f({})`, ""},
	{FormHermes, "a <tool_call>\n{\"name\":\"unknown\",\"arguments\":{}}\n</tool_call>", "a <tool_call>\n{\"name\":\"unknown\",\"arguments\":{}}\n</tool_call>", "", ""},
	{FormHermes, "<tool_call>{'name': 'f'}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>", "", ""},
	{FormHermes, "<tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "<tool_call>", `f({})`, ""},
	{FormHermes, "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>", "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>", "", ""},
	{FormHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1e}}", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1e}}", "", "}}"},
	{FormHermes, "so: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "so: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "", "so:"},
	{FormHermes, "ends with <tool", "ends with <tool", "", ""},
	{FormLlama, "{\"name\": \"f\", \"parameters\": {\"a\": -1.5e3}}", "", `f({"a": -1.5e3})`, ""},
	{FormLlama, "\n{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}; {\"name\":\"f\",\"parameters\":{\"b\":null}}", "", `f({}) f({"b":null})`, ""},
	{FormLlama, "<|python_tag|>{\"name\":\"f\",\"parameters\":{}}", "", `f({})`, ""},
	{FormLlama, "I call <|python_tag|>{\"name\":\"f\",\"parameters\":{}}", "I call", `f({})`, ""},
	{FormLlama, "{\"name\":\"Ann\",\"age\":3}", "{\"name\":\"Ann\",\"age\":3}", "", ""},
	{FormLlama, "{\"name\":\"f\"}", "{\"name\":\"f\"}", "", ""}, // JSON that was asked for
	{FormLlama, " {a} {\"name\":\"f\",\"parameters\":{}}", " {a} {\"name\":\"f\",\"parameters\":{}}", "", ""},
	{FormLlama, "Hello {\"name\":\"f\",\"parameters\":{}}", "Hello {\"name\":\"f\",\"parameters\":{}}", "", ""},
	{FormMistral, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\":true}}, {\"name\":\"get_weather\",\"arguments\":{}}]", "", `f({"a":true}) get_weather({})`, ""},
	{FormMistral, "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}},", "", `f({})`, ""},
	{FormMistral, "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing", "", ""},
	{FormMistral, "see [TOOL_X] [1]", "see [TOOL_X] [1]", "", ""},
	{FormMistralArgs, "Yes.[TOOL_CALLS]f[ARGS]{\"a\":\"é\"}[TOOL_CALLS]get_weather[CALL_ID]abc123[ARGS] {}", "Yes.", `f({"a":"é"}) get_weather({})`, ""},
	{FormMistralArgs, "[TOOL_CALLS]f[ARGS]x", "[TOOL_CALLS]f[ARGS]x", "", ""},
}

func TestCallsAreFoundInEveryFormAndNothingIsLost(t *testing.T) {
	for _, x := range answers {
		text, calls := parsed(x.form, false, true, x.in)
		if text != x.text || strings.Join(calls, " ") != x.calls {
			t.Errorf("%q:\n got %q %q\nwant %q %q", x.in, text, calls, x.text, x.calls)
		}
		if text, _ := parsed(x.form, true, true, x.in); x.instead != "" && text != x.instead {
			t.Errorf("eagerly %q: %q, want %q", x.in, text, x.instead)
		}
	}
}

func TestWhatIsToldDoesNotDependOnHowTheTextWasSplit(t *testing.T) {
	for _, x := range answers {
		for _, eager := range []bool{false, true} {
			text, calls := parsed(x.form, eager, true, x.in)
			var all []int
			for i := range len(x.in) {
				if !utf8.RuneStart(x.in[i]) {
					continue
				}
				all = append(all, i)
				if got, list := parsed(x.form, eager, true, x.in, i); got != text || fmt.Sprint(list) != fmt.Sprint(calls) {
					t.Fatalf("%q split at %d: %q %q, whole %q %q", x.in, i, got, list, text, calls)
				}
			}
			if got, list := parsed(x.form, eager, true, x.in, all...); got != text || fmt.Sprint(list) != fmt.Sprint(calls) {
				t.Fatalf("%q one by one: %q %q, whole %q %q", x.in, got, list, text, calls)
			}
		}
	}
}

func TestNoMarkupShowsBeforeACallIsWhole(t *testing.T) {
	const text = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
	p := NewCallParser(FormHermes, []string{"f"}, false, true)
	shown := ""
	for i := range len(text) {
		for _, x := range p.Push(text[i : i+1]) {
			shown += x.Text
			if x.Begins && i != strings.LastIndex(text, "}") {
				t.Errorf("the call was told at byte %d", i)
			}
		}
	}
	if shown != "I look." || len(p.Flush()) != 0 {
		t.Errorf("%q", shown)
	}
}

func TestArgumentsGoOutAsTheyComeWhereAGrammarHoldsThem(t *testing.T) {
	p := NewCallParser(FormHermes, []string{"f"}, true, true)
	got := fmt.Sprint(p.Push("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\""), p.Open(), p.Push(": 1"), p.Push("}}"), p.Open())
	if want := `[{ 0 true f } { 0 false  {"a"}] true [{ 0 false  : 1}] [{ 0 false  }}] false`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestACallThatBreaksOffAfterItWasToldIsNotAnEnd(t *testing.T) {
	p := NewCallParser(FormHermes, []string{"f"}, true, false)
	text, calls := told(append(p.Push(`<tool_call>{"name":"f","arguments":{"a":x}}`), p.Flush()...))
	if !p.Open() || p.Calls() != 1 || calls[0] != `f({"a":)` || text != "" {
		t.Errorf("%q %q", text, calls)
	}
}

func TestAfterTheOneCallThatIsWantedNothingFollows(t *testing.T) {
	one := `<tool_call>{"name":"f","arguments":{}}</tool_call>`
	p := NewCallParser(FormHermes, []string{"f"}, false, false)
	text, calls := told(append(p.Push("a "+one+one+" and more"), p.Flush()...))
	if text != "a" || len(calls) != 1 || !p.Full() {
		t.Errorf("%q %q", text, calls)
	}
}

func FuzzCallParser(f *testing.F) {
	for i, x := range answers {
		f.Add(uint8(x.form), i%2 == 0, x.in, uint16(len(x.in)/2))
	}
	f.Fuzz(func(t *testing.T, form uint8, eager bool, in string, cut uint16) {
		in = strings.ToValidUTF8(in, "")
		text, calls := parsed(Form(form%4), eager, true, in)
		if at := min(int(cut), len(in)); at == len(in) || utf8.RuneStart(in[at]) {
			if got, list := parsed(Form(form%4), eager, true, in, at); got != text || fmt.Sprint(list) != fmt.Sprint(calls) {
				t.Fatalf("split at %d: %q %q, whole %q %q", at, got, list, text, calls)
			}
		}
		if len(calls) == 0 && text != in {
			t.Fatalf("without a call %q became %q", in, text)
		}
		for _, c := range calls {
			_, arguments, _ := strings.Cut(strings.TrimSuffix(c, ")"), "(")
			if !eager && !isObject(arguments) {
				t.Fatalf("%s is not called with an object", c)
			}
		}
		if !utf8.ValidString(text) {
			t.Fatalf("%q is no text", text)
		}
	})
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,-0.5e+3,"\u00e9\\",{"b":null}],"c":true}`, `{"a":01}`, `{"a":1,}`, `[1]`, "{\"a\":\"\n\"}", `{"a" :{ } , "b":[ ]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var s scan
		end := 0
		for i := range len(in) {
			switch s.step(in[i]) {
			case scanBad:
				if json.Valid([]byte(in)) && strings.HasPrefix(strings.TrimLeft(in, " \n\t\r"), "{") && len(s.stack) < maxNesting {
					t.Fatalf("%q is JSON, and was refused at %d", in, i)
				}
				return
			case scanDone:
				end = i + 1
			}
			if end > 0 {
				break
			}
		}
		if end > 0 && !json.Valid([]byte(in[:end])) {
			t.Fatalf("%q is no JSON", in[:end])
		}
		if end == 0 && json.Valid([]byte(in)) && strings.HasPrefix(strings.TrimLeft(in, " \n\t\r"), "{") {
			t.Fatalf("%q is JSON, and did not end", in)
		}
	})
}
