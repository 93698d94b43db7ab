package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// nouns make prompts of any length that no two streams share.
var nouns = strings.Fields("river stone window garden letter captain winter engine market shadow bridge music " +
	"paper island doctor kettle forest mirror lantern harbour")

// text returns a story of about so many words; the key makes it another one from
// its first word on.
func text(words, key int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Story %d.", key)
	for i := range words {
		fmt.Fprintf(&b, " %s", nouns[(i*i+i*7+key*13)%len(nouns)])
	}
	return b.String()
}

// body is one request of the storm, or a canary.
func body(prompt string, tokens int, label string) []byte {
	b, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]bool{"include_usage": true}, "rid": label})
	if err != nil {
		panic(err) // strings and numbers: it cannot fail
	}
	return b
}
