package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/tandem-llm/tandem/internal/sample"
)

// chooser is what the choosing of one sequence's tokens remembers. All of it
// follows from the request and the sequence's tokens, so a sequence that goes on
// elsewhere (Params.Before) goes on alike.
type chooser struct {
	counts  sample.Counts
	grammar Grammar // nil: none
}

// choosing is what the loop's choosing has of its own.
type choosing struct {
	sampler sample.Sampler
	logits  []float32 // a changed copy: forks of a sequence share the backend's
	ends    []Token   // the vocabulary's end-of-generation tokens; nil: not looked for yet
}

// redraw changes the seed where a token is drawn a second time at its position,
// so that the draw does not depend on the first.
const redraw = 0x9E3779B97F4A7C15

// remembers says whether choosing needs more than logits, seed and position.
func (p *Params) remembers() bool { return p.penalties().Any() || p.Grammar != "" }

func (p *Params) penalties() sample.Penalties {
	return sample.Penalties{Repetition: p.Repetition, Presence: p.Presence, Frequency: p.Frequency}
}

// checkParams refuses what can never run.
func (l *Loop) checkParams(r *Request) error {
	if r.PromptLogprobs > 0 && r.KV != Compute {
		return &ParamError{"prompt log probabilities need a prompt that is computed here"}
	}
	g := r.Gen
	if g == nil {
		return nil
	}
	for _, b := range g.Bias {
		if b.Token < 0 || int(b.Token) >= l.info.Vocab {
			return &ParamError{fmt.Sprintf("logit_bias: token %d is outside the vocabulary of %d", b.Token, l.info.Vocab)}
		}
	}
	if g.Before < 0 || g.Before >= len(r.Tokens) {
		return &ParamError{fmt.Sprintf("%d of %d tokens cannot have been generated before", g.Before, len(r.Tokens))}
	}
	if _, ok := l.backend.(Grammars); g.Grammar != "" && !ok {
		return ErrNoGrammar
	}
	return nil
}

// choose picks the token at s.pos from the row's logits. ends: the token, which
// is not part of the text, ends the sequence; −1 if there was none to choose.
func (l *Loop) choose(s *Seq, row int) (t Token, lp *Logprobs, ends bool, err error) {
	g := s.req.Gen
	raw := l.backend.Logits(row)
	if len(raw) == 0 {
		return 0, nil, false, fmt.Errorf("the backend has no logits for row %d", row)
	}
	if s.chooser == nil && g.remembers() {
		if s.chooser, err = l.newChooser(s.req); err != nil {
			return 0, nil, false, err
		}
	}
	logits, early := raw, g.Before+s.res.Generated < g.MinTokens
	if early || len(g.Bias) > 0 || g.penalties().Any() {
		logits = l.change(raw)
		sample.AddBias(logits, g.Bias)
		if s.chooser != nil {
			s.chooser.counts.Penalize(logits, g.penalties())
		}
		if early {
			l.forbidEnds(logits, g)
		}
	}
	t = l.choice.sampler.Next(logits, sampling(g), g.Seed, s.pos)
	if c := s.chooser; c != nil && c.grammar != nil && !c.grammar.Allows(t) {
		// Masking a vocabulary takes long; mostly the model wants what it may.
		if &logits[0] == &raw[0] {
			logits = l.change(raw)
		}
		c.grammar.Mask(logits)
		t = l.choice.sampler.Next(logits, sampling(g), g.Seed^redraw, s.pos)
	}
	if !(logits[t] >= -math.MaxFloat32) { // nothing may follow
		return -1, nil, true, nil
	}
	if g.Logprobs > 0 {
		lp = logprobs(raw, t, g.Logprobs)
	}
	eog := l.backend.Tokenizer().EndOfGeneration(t)
	if eog && !g.IgnoreEOS || slices.Contains(g.StopTokens, t) {
		return t, lp, true, nil
	}
	if c := s.chooser; c != nil {
		if c.grammar != nil {
			if eog { // ignored or not, a complete text is complete
				return t, lp, true, nil
			}
			c.grammar.Accept(t)
		}
		c.counts.Generated(t)
	}
	return t, lp, false, nil
}

// change returns a copy of logits that may be changed, until the next.
func (l *Loop) change(logits []float32) []float32 {
	l.choice.logits = append(l.choice.logits[:0], logits...)
	return l.choice.logits
}

// forbidEnds makes every token impossible that would end the sequence.
func (l *Loop) forbidEnds(logits []float32, g *Params) {
	never := float32(math.Inf(-1))
	for _, t := range g.StopTokens {
		if t >= 0 && int(t) < len(logits) {
			logits[t] = never
		}
	}
	if g.IgnoreEOS {
		return
	}
	if l.choice.ends == nil {
		l.choice.ends = []Token{}
		tok := l.backend.Tokenizer()
		for t := range Token(l.info.Vocab) {
			if tok.EndOfGeneration(t) {
				l.choice.ends = append(l.choice.ends, t)
			}
		}
	}
	for _, t := range l.choice.ends {
		logits[t] = never
	}
}

// newChooser reads the request's tokens once.
func (l *Loop) newChooser(r *Request) (*chooser, error) {
	c := &chooser{}
	prompt := len(r.Tokens) - r.Gen.Before
	if r.Gen.penalties().Any() {
		for _, t := range r.Tokens[:prompt] {
			c.counts.Prompt(t)
		}
		for _, t := range r.Tokens[prompt:] {
			c.counts.Generated(t)
		}
	}
	if r.Gen.Grammar == "" {
		return c, nil
	}
	var err error
	if c.grammar, err = l.backend.(Grammars).NewGrammar(r.Gen.Grammar); err != nil {
		return nil, &GrammarError{err}
	}
	for i, t := range r.Tokens[prompt:] {
		if !c.grammar.Allows(t) {
			c.close()
			return nil, &GrammarError{fmt.Errorf("it does not allow token %d, which was generated at %d", t, prompt+i)}
		}
		c.grammar.Accept(t)
	}
	return c, nil
}

// close is called on the loop's goroutine when the sequence ends.
func (c *chooser) close() {
	if c != nil && c.grammar != nil {
		c.grammar.Close()
		c.grammar = nil
	}
}

func sampling(p *Params) sample.Params {
	return sample.Params{Temperature: p.Temperature, TopP: p.TopP, TopK: p.TopK, MinP: p.MinP}
}
