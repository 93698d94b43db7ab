package engine

import "testing"

// still is a backend that only has logits.
type still struct {
	Backend
	Tokenizer
	logits []float32
}

func (b *still) Info() Info                 { return Info{Chunk: 4, Slots: 1, Cells: 9, Vocab: len(b.logits)} }
func (b *still) Logits(int) []float32       { return b.logits }
func (b *still) EndOfGeneration(Token) bool { return false }

type stillBackend struct{ *still }

func (b stillBackend) Info() Info             { return b.still.Info() }
func (b stillBackend) Tokenizer() Tokenizer   { return b.still }
func (b stillBackend) Logits(i int) []float32 { return b.still.Logits(i) }

func TestChoosingAllocatesNothingOnceWarm(t *testing.T) {
	l := New(Config{Backend: stillBackend{&still{logits: make([]float32, 5000)}}})
	for _, p := range []Params{{}, {Temperature: 1, TopP: 0.9}, {MinTokens: 3}, {Repetition: 1.2, Presence: 1}} {
		s := &Seq{loop: l, req: &Request{Tokens: []Token{1, 2, 3}, Gen: &p}, pos: 3}
		l.choose(s, 0)
		if n := testing.AllocsPerRun(100, func() { l.choose(s, 0) }); n > 0.5 { // a token that is new to the counts may
			t.Errorf("%+v: %v allocations a token", p, n)
		}
	}
}
