package llama

import (
	"errors"
	"math"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/grammar"
)

var _ engine.Grammars = (*Backend)(nil)

// constraint is a llama.cpp grammar sampler. The library ends the process when
// it is made to accept a token that cannot follow; so Accept asks first.
type constraint struct {
	b       *Backend
	sampler yzma.Sampler
}

// NewGrammar compiles a grammar.
func (b *Backend) NewGrammar(gbnf string) (engine.Grammar, error) {
	if err := grammar.Check(gbnf); err != nil {
		return nil, err
	}
	heard.firstError()
	s := yzma.SamplerInitGrammar(yzma.ModelGetVocab(b.model), gbnf, "root")
	if s == 0 {
		err := heard.firstError()
		heard.drain(b.c.Log)
		if err == "" {
			err = "llama.cpp cannot parse it"
		}
		return nil, errors.New(err)
	}
	if b.tokens == nil {
		b.tokens = &yzma.TokenDataArray{}
		b.tokenData = make([]yzma.TokenData, b.info.Vocab)
	}
	return &constraint{b: b, sampler: s}, nil
}

// apply lets the library mask the first n of tokenData.
func (c *constraint) apply(n int) {
	*c.b.tokens = yzma.TokenDataArray{Data: &c.b.tokenData[0], Size: uint64(n), Selected: -1}
	yzma.SamplerApply(c.sampler, c.b.tokens)
}

func masked(l float32) bool { return !(l >= -math.MaxFloat32) }

// Allows says whether t may come next.
func (c *constraint) Allows(t engine.Token) bool {
	if t < 0 || int(t) >= c.b.info.Vocab {
		return false
	}
	c.b.tokenData[0] = yzma.TokenData{Id: yzma.Token(t)}
	c.apply(1)
	return !masked(c.b.tokenData[0].Logit)
}

// Mask makes impossible what may not come next.
func (c *constraint) Mask(logits []float32) {
	n := min(len(logits), len(c.b.tokenData))
	if n == 0 {
		return
	}
	for i, l := range logits[:n] {
		c.b.tokenData[i] = yzma.TokenData{Id: yzma.Token(i), Logit: l}
	}
	c.apply(n)
	for _, d := range c.b.tokenData[:n] { // by id: the library may sort them
		logits[d.Id] = d.Logit
	}
}

// Accept moves on by t.
func (c *constraint) Accept(t engine.Token) {
	if c.Allows(t) {
		yzma.SamplerAccept(c.sampler, yzma.Token(t))
	}
}

// Close frees it.
func (c *constraint) Close() {
	if c.sampler != 0 {
		yzma.SamplerFree(c.sampler)
		c.sampler = 0
	}
}
