package llama

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

func text(t *testing.T, tok engine.Tokenizer, in string, special, bos bool) ([]engine.Token, string) {
	t.Helper()
	ids, err := tok.Encode(in, special, bos)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, x := range ids {
		out = append(out, tok.Piece(x)...)
	}
	return ids, string(out)
}

func TestAnyBytesAreTokenizedAndComeBack(t *testing.T) {
	for _, kind := range testmodel.Kinds() {
		b := load(t, kind, Config{SkipSelfTest: true})
		for _, in := range []string{
			"", "hello", "\x00", "a\x00b", "\x00\x00\x00", "ends\x00", "\xff\xfe\x80", "a\xc3", "𝄞 ünïcode\r\n\t",
			"\xed\xa0\x80", "\xf8\x88\x80\x80\x80", strings.Repeat("\x00x\xff", 100), strings.Repeat("é", 1000),
		} {
			_, got := text(t, b.tok, in, false, false)
			// SentencePiece vocabularies may put a space in front.
			if got != in && got != " "+in && !strings.ContainsRune(strings.ToValidUTF8(in, "\uFFFD"), '\uFFFD') {
				t.Errorf("%v: %q comes back as %q", kind, in, got)
			}
		}
		var all []byte
		for i := range 256 {
			all = append(all, byte(i))
		}
		if ids, _ := text(t, b.tok, string(all), true, true); len(ids) < 100 {
			t.Errorf("%v: %d tokens for all bytes", kind, len(ids))
		}
	}
}

func TestControlTokensAreTokensOnlyWhenAsked(t *testing.T) {
	b := load(t, testmodel.Gemma3, Config{SkipSelfTest: true})
	if b.info.BOS == "" || b.info.EOS == "" {
		t.Fatalf("%+v", b.info)
	}
	plain, _ := text(t, b.tok, b.info.EOS, false, false)
	special, piece := text(t, b.tok, b.info.EOS, true, false)
	if len(special) != 1 || !b.tok.EndOfGeneration(special[0]) || piece != "" {
		t.Fatalf("%v %q", special, piece)
	}
	if len(plain) < 2 {
		t.Fatalf("text that looks like a control token became one: %v", plain)
	}
	if bos, _ := text(t, b.tok, "x", false, true); b.info.AddBOS && (bos[0] != engine.Token(b.tok.bos)) {
		t.Fatalf("%v does not begin with BOS", bos)
	}
	for _, x := range []engine.Token{-1, 1 << 30} {
		if b.tok.Piece(x) != nil || b.tok.EndOfGeneration(x) {
			t.Fatal("a token outside the vocabulary means something")
		}
	}
}

func FuzzEncode(f *testing.F) {
	b := load(f, testmodel.LlamaGQA, Config{SkipSelfTest: true})
	f.Add("hello\x00\xff<s>", true)
	f.Fuzz(func(t *testing.T, in string, special bool) {
		ids, err := b.tok.Encode(in, special, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range ids {
			if x < 0 || int(x) >= b.info.Vocab {
				t.Fatalf("token %d", x)
			}
		}
		if len(in) > 0 && len(bytes.Trim([]byte(in), "\x00")) > 0 && len(ids) == 0 {
			t.Fatal("text vanished")
		}
	})
}
