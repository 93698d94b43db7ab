package sim

import (
	"fmt"
	"strings"

	"github.com/tandem-llm/tandem/internal/engine"
)

// The vocabulary: 256 bytes, then these, then words " w0000", " w0001", …
const (
	tokenBOS engine.Token = 256 + iota
	tokenEOS
	tokenStart // <|im_start|>
	tokenEnd   // <|im_end|>
	// Corrupt is what the simulator generates from KV that is not exactly what
	// some Compute wrote. Its text is CorruptText.
	Corrupt
	firstWord = 272 // ids up to here are reserved
)

// CorruptText is the text of a token computed from damaged KV.
const CorruptText = " !CORRUPT!"

// controls in the order of their ids, from tokenBOS on.
var controls = []string{"<s>", "</s>", "<|im_start|>", "<|im_end|>"}

// Template is the simulator's chat template.
const Template = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// tokenizer maps text to bytes and words, and loses nothing: any bytes come
// back as they were.
type tokenizer struct{ words int }

// wordLen is the length of " w" and four digits.
const wordLen = 6

func (t tokenizer) Encode(text string, special, bos bool) ([]engine.Token, error) {
	out := make([]engine.Token, 0, len(text)+1)
	if bos {
		out = append(out, tokenBOS)
	}
	for len(text) > 0 {
		if special && text[0] == '<' {
			if id, n := control(text); n > 0 {
				out = append(out, id)
				text = text[n:]
				continue
			}
		}
		if w, ok := t.word(text); ok {
			out = append(out, engine.Token(firstWord+w))
			text = text[wordLen:]
			continue
		}
		out = append(out, engine.Token(text[0]))
		text = text[1:]
	}
	return out, nil
}

func control(text string) (engine.Token, int) {
	for i, c := range controls {
		if strings.HasPrefix(text, c) {
			return tokenBOS + engine.Token(i), len(c)
		}
	}
	return 0, 0
}

func (t tokenizer) word(text string) (int, bool) {
	if len(text) < wordLen || text[:2] != " w" {
		return 0, false
	}
	w := 0
	for _, c := range []byte(text[2:wordLen]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		w = w*10 + int(c-'0')
	}
	return w, w < t.words
}

func (t tokenizer) Piece(x engine.Token) []byte {
	switch {
	case x >= 0 && x < 256:
		return []byte{byte(x)}
	case x == Corrupt:
		return []byte(CorruptText)
	case x >= firstWord && int(x) < firstWord+t.words:
		return fmt.Appendf(nil, " w%04d", x-firstWord)
	}
	return nil
}

func (t tokenizer) EndOfGeneration(x engine.Token) bool { return x == tokenEOS || x == tokenEnd }

// Name returns the text of a control token.
func (t tokenizer) Name(x engine.Token) string {
	if x >= tokenBOS && int(x-tokenBOS) < len(controls) {
		return controls[x-tokenBOS]
	}
	return ""
}
