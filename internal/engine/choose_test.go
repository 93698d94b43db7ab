package engine_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/sample"
)

// scored is a recorder that keeps log probabilities.
type scored struct {
	*recorder
	own    []*engine.Logprobs
	prompt []engine.TokenLogprob // with the position in Token's place
	tokens []engine.Token
}

func (s *scored) Token(t engine.Token, pos int32, lp *engine.Logprobs) {
	s.own = append(s.own, lp)
	s.recorder.Token(t, pos, lp)
}

func (s *scored) PromptToken(t engine.Token, pos int32, lp *engine.Logprobs) {
	s.prompt = append(s.prompt, engine.TokenLogprob{Token: pos, Log: lp.Own})
	s.tokens = append(s.tokens, t)
}

func generated(t *testing.T, l *engine.Loop, tokens []engine.Token, p engine.Params) ([]engine.Token, engine.Result) {
	t.Helper()
	h := newRecorder()
	admit(t, l, &engine.Request{Tokens: tokens, Gen: &p}, h)
	res := h.wait(t)
	return h.tokens, res
}

// digits is a backend with a grammar: after a token its number plus one, up to
// 8; then the end.
type digits struct {
	*sim.Backend
	closed int
	masked int
}

type place struct {
	d    *digits
	next engine.Token
}

const eos = 257 // the simulator's </s>

func (d *digits) NewGrammar(s string) (engine.Grammar, error) {
	if s != "digits" {
		return nil, errors.New("unknown rule")
	}
	return &place{d, 1}, nil
}
func (p *place) Allows(t engine.Token) bool {
	return p.next <= 8 && t == p.next || p.next > 8 && t == eos
}
func (p *place) Mask(l []float32) {
	p.d.masked++
	for i := range l {
		if !p.Allows(engine.Token(i)) {
			l[i] = float32(math.Inf(-1))
		}
	}
}
func (p *place) Accept(engine.Token) { p.next++ }
func (p *place) Close()              { p.d.closed++ }

func startDigits(t *testing.T) (*engine.Loop, *digits) {
	b, err := sim.New(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := &digits{Backend: b}
	l := engine.New(engine.Config{Backend: d})
	t.Cleanup(run(t, l))
	return l, d
}

func TestASequenceThatResumesGoesOnAsItWould(t *testing.T) {
	l, _ := startDigits(t)
	words := prompt(20, 3)
	for name, p := range map[string]engine.Params{
		"greedy":      {},
		"temperature": {Temperature: 1, Seed: 5},
		"truncated":   {Temperature: 1.5, TopK: 9, TopP: 0.9, MinP: 0.01, Seed: 6},
		"repetition":  {Repetition: 1.4},
		"presence":    {Temperature: 1, Presence: 1.5, Frequency: 0.7, Seed: 7},
		"bias":        {Temperature: 1, Bias: []sample.Bias{{Token: 400, Add: 11}, {Token: 500, Add: 11}}, Frequency: 2, Seed: 8},
		"least":       {MinTokens: 9, Bias: []sample.Bias{{Token: eos, Add: 100}}},
		"grammar":     {Temperature: 1, Grammar: "digits", Seed: 9},
	} {
		t.Run(name, func(t *testing.T) {
			p.MaxTokens = 40
			whole, end := generated(t, l, words, p)
			for k := range whole {
				rest := p
				rest.MaxTokens, rest.Before = p.MaxTokens-k, k
				got, res := generated(t, l, slices.Concat(words, whole[:k]), rest)
				equal(t, name, got, whole[k:])
				if res.Finish != end.Finish || res.Stop != end.Stop {
					t.Fatalf("from %d on it ended by %v, not %v", k, res.Finish, end.Finish)
				}
			}
		})
	}
}

func TestPenaltiesKeepTokensFromComingAgain(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	// The bias makes one token the greedy choice for ever.
	p := engine.Params{MaxTokens: 30, Bias: []sample.Bias{{Token: 400, Add: 13}}}
	always, _ := generated(t, l, prompt(5, 1), p)
	if !slices.Equal(always, slices.Repeat([]engine.Token{400}, 30)) {
		t.Fatal("the bias does not count")
	}
	p.Presence = 2
	once, _ := generated(t, l, prompt(5, 1), p)
	if n := count(once, 400); n != 1 {
		t.Errorf("with a presence penalty it came %d times", n)
	}
	p.Presence, p.Frequency = 0, 0.25
	some, _ := generated(t, l, prompt(5, 1), p)
	if n := count(some, 400); n < 4 || n > 6 {
		t.Errorf("with a frequency penalty it came %d times", n)
	}
	p.Frequency, p.Repetition = 0, 1.3
	none, _ := generated(t, l, append(prompt(5, 1), 400, 300), p)
	if n := count(none, 400); n != 0 {
		t.Errorf("the repetition penalty does not see the prompt: it came %d times", n)
	}
}

func count(s []engine.Token, x engine.Token) (n int) {
	for _, t := range s {
		if t == x {
			n++
		}
	}
	return n
}

func TestTheEndWaitsForMinTokens(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	for _, x := range []struct {
		p      engine.Params
		n      int
		finish engine.Finish
	}{
		{engine.Params{Bias: []sample.Bias{{Token: eos, Add: 100}}}, 0, engine.FinishStop},
		{engine.Params{Bias: []sample.Bias{{Token: eos, Add: 100}}, MinTokens: 5}, 5, engine.FinishStop},
		{engine.Params{Bias: []sample.Bias{{Token: 400, Add: 100}}, MinTokens: 5, StopTokens: []engine.Token{400}}, 5, engine.FinishStop},
		{engine.Params{Bias: []sample.Bias{{Token: 400, Add: 100}}, IgnoreEOS: true, StopTokens: []engine.Token{400}}, 0, engine.FinishStop},
		{engine.Params{Bias: []sample.Bias{{Token: eos, Add: 100}}, IgnoreEOS: true}, 9, engine.FinishLength},
	} {
		x.p.MaxTokens = 9
		got, res := generated(t, l, prompt(5, 1), x.p)
		if len(got) != x.n || res.Finish != x.finish || res.Finish == engine.FinishStop && res.Stop != x.p.Bias[0].Token {
			t.Errorf("%+v: %d tokens, %v by %d", x.p, len(got), res.Finish, res.Stop)
		}
	}
}

func TestAGrammarHoldsTheTextAndIsClosed(t *testing.T) {
	l, d := startDigits(t)
	got, res := generated(t, l, prompt(5, 1), engine.Params{Grammar: "digits", MaxTokens: 30, IgnoreEOS: true})
	equal(t, "digits", got, []engine.Token{1, 2, 3, 4, 5, 6, 7, 8})
	if res.Finish != engine.FinishStop || d.closed != 1 || d.masked != 9 {
		t.Errorf("%v, %d closed, %d masked", res.Finish, d.closed, d.masked)
	}
	_, res = generated(t, l, prompt(5, 1), engine.Params{Grammar: "letters", MaxTokens: 30})
	var bad *engine.GrammarError
	if res.Finish != engine.FinishFailed || !errors.As(res.Err, &bad) {
		t.Errorf("a grammar that is none: %v, %v", res.Finish, res.Err)
	}
	plain, _ := start(t, sim.Config{}, engine.Config{})
	if _, err := plain.Admit(&engine.Request{Tokens: prompt(2, 1), Gen: &engine.Params{Grammar: "x", MaxTokens: 1}}, newRecorder()); !errors.Is(err, engine.ErrNoGrammar) {
		t.Error(err)
	}
}

func TestLogprobsAreTheModelsOwnWhateverTheParams(t *testing.T) {
	l, _ := start(t, sim.Config{}, engine.Config{})
	h := &scored{recorder: newRecorder()}
	admit(t, l, &engine.Request{Tokens: prompt(5, 1), Gen: &engine.Params{MaxTokens: 6, Logprobs: 4, Temperature: 0.2, Bias: []sample.Bias{{Token: 400, Add: 50}}}}, h)
	h.wait(t)
	for i, lp := range h.own {
		if len(lp.Top) != 3 || lp.Top[0].Token == 400 || lp.Top[0].Log < lp.Top[1].Log {
			t.Fatalf("top at %d: %v", i, lp.Top)
		}
		if h.recorder.tokens[i] != 400 || lp.Own > -10 {
			t.Fatalf("token %d at %d has %v, as if the bias were the model's", h.recorder.tokens[i], i, lp.Own)
		}
	}
}

func TestAPromptsLogprobsComeInOrderAndInSmallSteps(t *testing.T) {
	var most int
	l, _ := start(t, sim.Config{Hook: func(o sim.Op) error { most = max(most, o.Rows); return nil }}, engine.Config{})
	for _, from := range []int32{0, 1, 70, 149, 500} {
		text := prompt(150, 4)
		continued := append(slices.Clone(text[:120]), sim.Expect(sim.Config{}, text[:120], 30)...)
		one, two := &scored{recorder: newRecorder()}, &scored{recorder: newRecorder()}
		for _, h := range []*scored{one, two} {
			admit(t, l, &engine.Request{Tokens: continued, Gen: &engine.Params{MaxTokens: 2}, PromptLogprobs: 1, PromptFrom: from}, h)
		}
		for _, h := range []*scored{one, two} {
			h.wait(t)
			first := max(from, 1)
			if want := max(0, 150-int(first)); len(h.prompt) != want {
				t.Fatalf("from %d: %d, want %d", from, len(h.prompt), want)
			}
			for i, x := range h.prompt {
				pos := first + int32(i)
				if x.Token != pos || h.tokens[i] != continued[pos] || (x.Log > -3) != (pos >= 120) {
					t.Fatalf("from %d, position %d: %+v", from, pos, x)
				}
			}
		}
		if from <= 1 && most > 2*engine.MaxScoredRows {
			t.Fatalf("a step of %d rows", most)
		}
	}
	if _, err := l.Admit(&engine.Request{Tokens: prompt(9, 1), KV: engine.Imported, Gen: &engine.Params{MaxTokens: 1}, PromptLogprobs: 1}, newRecorder()); err == nil {
		t.Error("prompt log probabilities without a computed prompt were admitted")
	}
}
