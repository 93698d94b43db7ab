package llama

import (
	"errors"
	"strings"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
)

// maxText bounds one Encode, in bytes: the library counts in int32.
const maxText = 256 << 20

// tokenizer holds the vocabulary's pieces in Go memory, so that only Encode
// calls the library, which for tokenizing is safe from any goroutine.
type tokenizer struct {
	vocab  yzma.Vocab
	addBOS bool
	bos    yzma.Token
	nul    yzma.Token // the token of byte 0; −1 without one
	mark   yzma.Token // the token of byte 1; −1 without one
	spaced bool       // the library puts a space in front of every text
	text   []byte     // all pieces, one after the other
	ends   []uint32   // ends[t]: where t's piece ends in text
	eog    []bool
}

func newTokenizer(vocab yzma.Vocab) (*tokenizer, error) {
	n := int(yzma.VocabNTokens(vocab))
	if n <= 0 {
		return nil, errors.New("the model has no tokenizer")
	}
	t := &tokenizer{vocab: vocab, addBOS: yzma.VocabGetAddBOS(vocab), bos: yzma.VocabBOS(vocab), nul: -1, mark: -1,
		ends: make([]uint32, n), eog: make([]bool, n)}
	t.addBOS = t.addBOS && t.bos >= 0
	buf := make([]byte, 256)
	for i := range n {
		x := yzma.Token(i)
		m := yzma.TokenToPiece(vocab, x, buf, 0, false)
		if m < 0 {
			buf = make([]byte, -m)
			m = yzma.TokenToPiece(vocab, x, buf, 0, false)
		}
		piece := buf[:max(m, 0)]
		if len(piece) == 1 && piece[0] == 0 && t.nul < 0 {
			t.nul = x
		}
		if len(piece) == 1 && piece[0] == 1 && t.mark < 0 {
			t.mark = x
		}
		t.text = append(t.text, piece...)
		t.ends[i] = uint32(len(t.text))
		t.eog[i] = yzma.VocabIsEOG(vocab, x)
	}
	if ids := yzma.Tokenize(vocab, "a", false, false); len(ids) > 0 {
		t.spaced = strings.HasPrefix(string(t.Piece(engine.Token(ids[0]))), " ")
	}
	return t, nil
}

// inner tokenizes text that does not begin the whole: behind a byte 1, whose
// token is then cut off together with the space the library puts in front.
func (t *tokenizer) inner(text string, special bool) []yzma.Token {
	if !t.spaced || t.mark < 0 {
		return yzma.Tokenize(t.vocab, text, false, special)
	}
	ids := yzma.Tokenize(t.vocab, "\x01"+text, false, special)
	for i, x := range ids {
		if x == t.mark {
			return ids[i+1:]
		}
	}
	return ids
}

// Encode tokenizes any bytes. The binding hands the library a null pointer, with
// a length, for a text that holds a NUL, so text is split there and the NUL
// becomes the vocabulary's byte token; a vocabulary without one loses it.
func (t *tokenizer) Encode(text string, special, bos bool) ([]engine.Token, error) {
	if len(text) > maxText {
		return nil, errors.New("text too long to tokenize")
	}
	var out []engine.Token
	if bos && t.addBOS {
		out = append(out, engine.Token(t.bos))
	}
	for first := true; ; first = false {
		part, rest, more := strings.Cut(text, "\x00")
		var ids []yzma.Token
		switch {
		case part == "":
		case first:
			ids = yzma.Tokenize(t.vocab, part, false, special)
		default:
			ids = t.inner(part, special)
		}
		for _, x := range ids {
			out = append(out, engine.Token(x))
		}
		if !more {
			return out, nil
		}
		if t.nul >= 0 {
			out = append(out, engine.Token(t.nul))
		}
		text = rest
	}
}

// Piece returns a token's bytes. The slice must not be changed.
func (t *tokenizer) Piece(x engine.Token) []byte {
	if x < 0 || int(x) >= len(t.ends) {
		return nil
	}
	begin := uint32(0)
	if x > 0 {
		begin = t.ends[x-1]
	}
	if end := t.ends[x]; end > begin {
		return t.text[begin:end:end]
	}
	return nil
}

// EndOfGeneration says whether a model that emits x has finished.
func (t *tokenizer) EndOfGeneration(x engine.Token) bool {
	return x >= 0 && int(x) < len(t.eog) && t.eog[x]
}
