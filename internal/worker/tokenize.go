package worker

import (
	"context"
	"errors"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/room"
)

// leastLongest is the least that the longest token's text is taken for, as
// control tokens in a rendered template have text that the vocabulary's pieces do
// not show.
const leastLongest = 64

// longestPiece returns a bound of one token's text, in bytes.
func longestPiece(tok engine.Tokenizer, vocab int) int {
	longest := leastLongest
	for t := range engine.Token(vocab) {
		longest = max(longest, len(tok.Piece(t)))
	}
	return longest
}

// turn waits for one of the places at the tokenizer: as many run at once as
// there are processors, so that large prompts do not starve small ones of them.
func (p *parts) turn(ctx context.Context) (leave func(), cause *room.Cause) {
	select {
	case p.tokenizing <- struct{}{}:
		return func() { <-p.tokenizing }, nil
	case <-ctx.Done():
		return nil, asCause(context.Cause(ctx), room.ClientGone)
	}
}

// tokenize returns the prompts' tokens, at least one each.
func (p *parts) tokenize(ctx context.Context, call *api.Call) ([][]engine.Token, *room.Cause) {
	if call.Kind == api.Chat {
		now := unixNow()
		if call.Leg != nil && call.Leg.RequestTime > 0 {
			now = call.Leg.RequestTime
		}
		tokens, cause := p.chatTokens(ctx, call.Messages, call.Tools, now, call.Params.MaxTokens)
		return [][]engine.Token{tokens}, cause
	}
	var out [][]engine.Token
	for i, x := range call.Prompts() {
		tokens := x.IDs
		if tokens == nil {
			var cause *room.Cause
			if tokens, cause = p.encode(ctx, x.Text, false, true, call.Params.MaxTokens); cause != nil {
				return nil, cause
			}
		}
		for at, t := range tokens {
			if int(t) >= p.info.Vocab {
				return nil, room.Because(room.BadRequest, "input_ids: id %d at %d of prompt %d is outside the vocabulary of %d", t, at, i, p.info.Vocab)
			}
		}
		if len(tokens) == 0 {
			return nil, room.Because(room.BadRequest, "prompt: it has no tokens")
		}
		out = append(out, tokens)
	}
	return out, nil
}

// chatTokens renders messages and tokenizes the text.
func (p *parts) chatTokens(ctx context.Context, messages []api.Message, tools []api.Tool, now int64, maxTokens int) ([]engine.Token, *room.Cause) {
	leave, cause := p.turn(ctx)
	if cause != nil {
		return nil, cause
	}
	text, err := p.chat.Render(messages, tools, true, now)
	leave()
	if err != nil {
		return nil, asCause(err, room.BadRequest)
	}
	tokens, cause := p.encode(ctx, text, true, false, maxTokens)
	if cause == nil && len(tokens) == 0 {
		cause = room.Because(room.BadRequest, "messages: the model's chat template makes an empty prompt of them")
	}
	return tokens, cause
}

// maxTokenizeBytes bounds a text whose tokens need not fit the context. The library
// cannot be interrupted, and its time grows faster than some texts do.
const maxTokenizeBytes = 1 << 20

// encode tokenizes text, unless it is so long that no tokenizer can make it fit.
// maxTokens below 0 means that it need not fit.
func (p *parts) encode(ctx context.Context, text string, special, bos bool, maxTokens int) ([]engine.Token, *room.Cause) {
	if least := len(text) / p.longest; maxTokens >= 0 && least > p.info.Cells {
		return nil, room.Because(room.TooLong, "prompt of %d bytes, at least %d tokens, + max_tokens %d exceeds the context of %d tokens: shorten the prompt", len(text), least, maxTokens, p.info.Cells)
	}
	if maxTokens < 0 && len(text) > maxTokenizeBytes {
		return nil, room.Because(room.BadRequest, "prompt: %d bytes are above the limit of %d that is tokenized at once: send it in parts", len(text), maxTokenizeBytes)
	}
	leave, cause := p.turn(ctx)
	if cause != nil {
		return nil, cause
	}
	defer leave()
	tokens, err := p.engine.Tokenizer().Encode(text, special, bos)
	if err != nil {
		return nil, asCause(err, room.BadRequest)
	}
	return tokens, nil
}

// piece returns a token's bytes in the text, or with control the name of one that
// has none.
func (p *parts) piece(t engine.Token, control bool) []byte {
	tok := p.engine.Tokenizer()
	b := tok.Piece(t)
	if n, ok := tok.(engine.Namer); ok && control && len(b) == 0 {
		b = []byte(n.Name(t))
	}
	return b
}

func asCause(err error, code room.Code) *room.Cause {
	var c *room.Cause
	if errors.As(err, &c) {
		return c
	}
	return room.Because(code, "%v", err)
}
