package llama

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/grammar"
)

// walk generates greedily by random-looking logits under a grammar, as the loop
// does, and returns the text; ended says whether the grammar let it end.
func walk(t *testing.T, b *Backend, gbnf string, salt uint64, most int) (text string, ended bool) {
	t.Helper()
	g, err := b.NewGrammar(gbnf)
	if err != nil {
		t.Fatalf("%v\n%s", err, gbnf)
	}
	defer g.Close()
	logits := make([]float32, b.info.Vocab)
	for range most {
		for i := range logits {
			salt = salt*6364136223846793005 + 1442695040888963407
			logits[i] = float32(salt>>40) / (1 << 20)
			if b.tok.EndOfGeneration(engine.Token(i)) {
				logits[i] += 8
			}
			// Short pieces and closing ones, or the text never ends.
			if p := b.tok.Piece(engine.Token(i)); len(p) == 1 && strings.IndexByte(`"}],:`, p[0]) >= 0 {
				logits[i] += 6
			}
		}
		g.Mask(logits)
		best := 0
		for i, l := range logits {
			if l > logits[best] {
				best = i
			}
		}
		if masked(logits[best]) {
			t.Fatalf("nothing may follow %q", text)
		}
		if !g.Allows(engine.Token(best)) {
			t.Fatal("Mask and Allows differ")
		}
		if b.tok.EndOfGeneration(engine.Token(best)) {
			return text, true
		}
		g.Accept(engine.Token(best))
		text += string(b.tok.Piece(engine.Token(best)))
	}
	return text, false
}

func TestWhatAGrammarLetsThroughIsTheJSONItSays(t *testing.T) {
	b := load(t, testmodel.LlamaGQA, Config{})
	schema := func(s string) string {
		out, err := grammar.Schema([]byte(s))
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		return out
	}
	ends := 0
	for salt := range uint64(12) {
		for _, x := range []struct {
			gbnf string
			ok   func(v any) bool
		}{
			{grammar.JSON, func(v any) bool { _, ok := v.(map[string]any); return ok }},
			{schema(`{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string","maxLength":4},"o":{"type":"boolean"}},"required":["b","a"]}`), func(v any) bool {
				m, ok := v.(map[string]any)
				n, isNum := m["b"].(float64)
				s, isStr := m["a"].(string)
				return ok && isNum && n == math.Trunc(n) && isStr && len([]rune(s)) <= 4 && len(m) <= 3
			}},
			{schema(`{"type":"array","items":{"enum":["x","ü\"",3]},"minItems":2,"maxItems":3}`), func(v any) bool {
				l, ok := v.([]any)
				for _, x := range l {
					ok = ok && (x == "x" || x == "ü\"" || x == 3.0)
				}
				return ok && len(l) >= 2 && len(l) <= 3
			}},
			{schema(`{"$ref":"#/$defs/list","$defs":{"list":{"anyOf":[{"type":"null"},{"type":"object","properties":{"next":{"$ref":"#/$defs/list"}},"required":["next"]}]}}}`), func(v any) bool {
				for v != nil {
					m, ok := v.(map[string]any)
					if !ok || len(m) != 1 {
						return false
					}
					v = m["next"]
				}
				return true
			}},
			{schema(`{"type":"object","properties":{},"additionalProperties":{"type":["number","null"]}}`), func(v any) bool { _, ok := v.(map[string]any); return ok }},
		} {
			text, ended := walk(t, b, x.gbnf, salt, 300)
			if !ended {
				continue
			}
			ends++
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil || !x.ok(v) {
				t.Errorf("%q: %v\n%s", text, err, x.gbnf)
			}
		}
	}
	if ends < 30 {
		t.Fatalf("only %d of 60 texts ended: too few to say anything", ends)
	}
}

func TestNoGrammarEndsTheProcess(t *testing.T) {
	b := load(t, testmodel.LlamaGQA, Config{})
	for _, s := range []string{"", "x", "root ::=", "root ::= root", "root ::= a\na ::= b\nb ::= a", "root ::= (", "root ::= \"a", "root ::= [", "root ::= [a", "root ::= x",
		"root ::= \"a\"{3", "root ::= {3}", "root ::= \"a\"{3,1}", "root ::= *", "root ::= \"\\x", "root ::= \"\\q\"", "root ::= )", "other ::= \"a\"", "root ::= |", "root ::= \"\"", "root ::= (((", "root ::= \"a\"{2,99999999999999999999}",
		"root ::= <[99999999]>", "root ::= !\"a\"", "root ::= . ", "root ::= [^", "root ::= \xff", "root ::= (\"\")*", "root ::= (\"a\"*)*", strings.Repeat("(", 5000)} {
		g, err := b.NewGrammar(s)
		if err != nil {
			continue
		}
		logits := make([]float32, b.info.Vocab)
		g.Mask(logits)
		for x := range engine.Token(300) {
			g.Accept(x)
			g.Allows(-1)
		}
		g.Mask(logits)
		g.Close()
		g.Close()
	}
}

func TestALoopHoldsAnAnswerToASchema(t *testing.T) {
	b := load(t, testmodel.LlamaGQA, Config{})
	l := engine.New(engine.Config{Backend: b})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	gbnf, err := grammar.Schema([]byte(`{"type":"object","properties":{"n":{"type":"integer"},"ok":{"type":"boolean"},"kind":{"enum":["red","green"]}},"required":["n","ok","kind"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(4) {
		h := &relay{done: make(chan engine.Result, 1)}
		if _, err := l.Admit(&engine.Request{Tokens: prompt(b, 40, 1), PromptLogprobs: 3,
			Gen: &engine.Params{MaxTokens: 200, Temperature: float32(seed), Seed: seed, Grammar: gbnf, Logprobs: 2}}, h); err != nil {
			t.Fatal(err)
		}
		res := <-h.done
		var text strings.Builder
		for _, x := range h.tokens {
			text.Write(b.tok.Piece(x))
		}
		var v struct {
			N    *int64
			OK   *bool
			Kind string
		}
		if res.Finish != engine.FinishStop {
			t.Fatalf("%v %v: %q", res.Finish, res.Err, text.String())
		}
		if err := json.Unmarshal([]byte(text.String()), &v); err != nil || v.N == nil || v.OK == nil || v.Kind != "red" && v.Kind != "green" {
			t.Fatalf("%q: %v", text.String(), err)
		}
	}
}
