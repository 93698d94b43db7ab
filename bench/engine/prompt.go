package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/tandem-llm/tandem/bench/internal/client"
)

// prompts makes prompts of exact lengths, each with a beginning of its own so
// that no cache can help.
type prompts struct {
	url  string // of a Tandem that tokenizes
	made int
}

func promptsOf(systems []system) *prompts {
	for _, s := range systems {
		if s.name == serve {
			return &prompts{url: s.url}
		}
	}
	return nil
}

// next returns n token ids.
func (p *prompts) next(ctx context.Context, n int) ([]int32, error) {
	p.made++
	words := strings.Fields("the river runs past the old mill where a boat waits for the morning light and the birds sing over green fields")
	var b strings.Builder
	fmt.Fprintf(&b, "%d. report:", p.made)
	for i := range n {
		b.WriteByte(' ')
		b.WriteString(words[(i*7+i/19+p.made)%len(words)])
	}
	ids, err := client.Tokenize(ctx, p.url, b.String(), true)
	if err != nil {
		return nil, err
	}
	if len(ids) < n {
		return nil, fmt.Errorf("the text of a prompt has %d tokens, not %d", len(ids), n)
	}
	return ids[:n], nil
}
