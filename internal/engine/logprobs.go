package engine

import "github.com/tandem-llm/tandem/internal/sample"

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob = sample.Logprob

// Logprobs are the model's own log probabilities at one position: the softmax of
// the raw logits, before bias, penalties, grammar and temperature, as OpenAI and
// SGLang report them.
type Logprobs struct {
	Own float32        // of the token that stands there
	Top []TokenLogprob // the likeliest, best first
}

// Namer is what a Tokenizer may be besides: it names control tokens, whose Piece
// is empty.
type Namer interface {
	Name(t Token) string
}

// PromptHandler is what a Handler is, besides, whose Request wants PromptLogprobs.
type PromptHandler interface {
	// PromptToken gives the log probabilities of the prompt's token at pos, in
	// order, from max(1, PromptFrom) on: nothing predicts the first token.
	PromptToken(t Token, pos int32, lp *Logprobs)
}

// MaxScoredRows bounds the prompt rows of one step that have logits: they are a
// vocabulary's width each, 33 MB for 32 of the largest there are. A backend's
// Compute takes this many besides one for each sequence.
const MaxScoredRows = 32

// scores says whether the row at p, of the prompt, needs logits: those of the
// token that follows it.
func (r *Request) scores(p int32) bool { return r.PromptLogprobs > 0 && p+1 >= r.PromptFrom }

// limitScores keeps, of the spans that gather chose, one whose rows' logits are
// asked for, and shortens it to MaxScoredRows; it still ends at a multiple of its
// size. The others' turn comes in later steps.
func (l *Loop) limitScores() {
	n, taken := 0, false
	for i, s := range l.batch {
		p := l.spans[i]
		if s.computes() && s.req.scores(p.end-1) {
			if taken {
				continue
			}
			taken = true
			p.end = min(p.end, (p.pos/MaxScoredRows+1)*MaxScoredRows)
		}
		l.batch[n], l.spans[n] = s, p
		n++
	}
	l.batch, l.spans = l.batch[:n], l.spans[:n]
}

// promptScores hands out the log probabilities that the rows of p, the last of
// which is row, give for the tokens after them.
func (l *Loop) promptScores(s *Seq, p piece, row int) {
	h, ok := s.h.(PromptHandler)
	if !ok || s.req.PromptLogprobs == 0 {
		return
	}
	for q := p.pos; q < p.end; q++ {
		if !s.req.scores(q) {
			continue
		}
		logits := l.backend.Logits(row - int(p.end-1-q))
		t := s.req.Tokens[q+1]
		lp := logprobs(logits, t, s.req.PromptLogprobs)
		if err := l.guard(s, func() { h.PromptToken(t, q+1, lp) }); err != nil {
			l.finish(s, FinishFailed, err)
			return
		}
	}
}

// logprobs returns those of t and of the n−1 likeliest.
func logprobs(logits []float32, t Token, n int) *Logprobs {
	lp := &Logprobs{}
	lp.Own, lp.Top = sample.Logprobs(logits, t, n-1)
	return lp
}
