package testmodel

import (
	"fmt"
	"strings"
)

// space is SentencePiece's sign for a space. Text that holds this very character
// comes back with a space in its place: the one loss, and the format's own.
const space = "\u2581"

// GGUF's token types.
const (
	tokenNormal  int32 = 1
	tokenUnknown int32 = 2
	tokenControl int32 = 3
	tokenByte    int32 = 6
)

// vocab is a SentencePiece vocabulary with byte fallback.
type vocab struct {
	tokens []string
	scores []float32
	types  []int32
	index  map[string]int
}

func newVocab() *vocab { return &vocab{index: map[string]int{}} }

// add appends a token unless it is there already, and returns its id.
func (v *vocab) add(token string, typ int32, score float32) int {
	if id, ok := v.index[token]; ok {
		return id
	}
	id := len(v.tokens)
	v.index[token] = id
	v.tokens = append(v.tokens, token)
	v.scores = append(v.scores, score)
	v.types = append(v.types, typ)
	return id
}

// addBytes appends the 256 tokens that make every byte sequence expressible.
func (v *vocab) addBytes() {
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), tokenByte, 0)
	}
}

// addPieces appends ordinary pieces: words with all their beginnings, so that
// merging pair by pair can reach them, then single characters. A piece's score is
// lower the later it comes; merging prefers the higher.
func (v *vocab) addPieces() {
	piece := func(p string) { v.add(p, tokenNormal, -float32(len(v.tokens))) }
	beginnings := func(word string) {
		runes := []rune(word)
		for n := 2; n <= len(runes); n++ {
			piece(string(runes[:n]))
		}
	}
	for _, w := range strings.Fields(words) {
		beginnings(space + w)
	}
	for _, p := range strings.Fields(parts) {
		beginnings(p)
	}
	piece(space)
	piece(space + space)
	for c := rune(0x21); c < 0x7f; c++ {
		piece(string(c))
	}
	for _, c := range letters {
		piece(string(c))
	}
}

// The pieces' source: common words, common parts of words, and a few letters
// beyond ASCII, so that some characters are one token and others are bytes.
const (
	words = `the of and to in is you that it he was for on are as with his they at be this have
from or one had by word but not what all were we when your can said there use an each which
she do how their if will up other about out many then them these so some her would make like
him into time has look two more write go see number no way could people my than first water
been call who its now find long down day did get come made may part user assistant system
model answer question hello world name city weather`

	parts = `th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le
ve co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur ing ion ent ly tion ment { " } ": "," {" "} [] true false null 10 20 00`

	letters = "äöüßéèñçàœøåабвеинорст中文日本你好世界€–…“”"
)
