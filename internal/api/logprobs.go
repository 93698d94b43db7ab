package api

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// TokenLog is a token and its log probability; NaN where it has none, as the
// first of a prompt.
type TokenLog struct {
	ID    int32
	Piece []byte
	Log   float32
}

// Log is what one position's log probabilities say.
type Log struct {
	TokenLog
	Top    []TokenLog // the likeliest, best first
	Offset int        // characters of the answer's text before it
}

// leastLog is what stands for an impossible token, as JSON has no infinity; the
// APIs use it too.
const leastLog = -9999

func (t TokenLog) value() *float32 {
	if t.Log != t.Log {
		return nil
	}
	v := max(t.Log, leastLog)
	return &v
}

type chatToken struct {
	Token   string   `json:"token"`
	Logprob *float32 `json:"logprob"`
	Bytes   []int    `json:"bytes"`
}

type chatLog struct {
	chatToken
	Top []chatToken `json:"top_logprobs"`
}

type chatLogprobs struct {
	Content []chatLog `json:"content"`
}

func newChatToken(t TokenLog) chatToken {
	c := chatToken{Token: strings.ToValidUTF8(string(t.Piece), "\uFFFD"), Logprob: t.value(), Bytes: make([]int, len(t.Piece))}
	for i, b := range t.Piece {
		c.Bytes[i] = int(b)
	}
	return c
}

// newChatLogprobs returns chat's form, nil if none was asked for.
func newChatLogprobs(logs []Log, asked bool) *chatLogprobs {
	if !asked {
		return nil
	}
	out := &chatLogprobs{Content: make([]chatLog, 0, len(logs))}
	for _, l := range logs {
		c := chatLog{chatToken: newChatToken(l.TokenLog), Top: make([]chatToken, 0, len(l.Top))}
		for _, t := range l.Top {
			c.Top = append(c.Top, newChatToken(t))
		}
		out.Content = append(out.Content, c)
	}
	return out
}

// textLogprobs is the form of completions.
type textLogprobs struct {
	Tokens []string       `json:"tokens"`
	Logs   []*float32     `json:"token_logprobs"`
	Top    []*orderedLogs `json:"top_logprobs"`
	Offset []int          `json:"text_offset"`
}

// orderedLogs is a JSON object from token to log probability, best first.
type orderedLogs []TokenLog

// MarshalJSON keeps the order; of tokens with equal text the likelier counts.
func (o orderedLogs) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	seen := map[string]bool{}
	for _, t := range o {
		name := tokenName(t.Piece)
		if seen[name] {
			continue
		}
		if len(seen) > 0 {
			b.WriteByte(',')
		}
		seen[name] = true
		b.Write(encode(name))
		b.WriteByte(':')
		b.Write(encode(t.value()))
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// tokenName writes a piece of a character as OpenAI does, "bytes:\\xe2\\x82".
func tokenName(piece []byte) string {
	if utf8.Valid(piece) {
		return string(piece)
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range piece {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return b.String()
}

func newTextLogprobs(logs []Log, asked bool) *textLogprobs {
	if !asked {
		return nil
	}
	out := &textLogprobs{Tokens: []string{}, Logs: []*float32{}, Offset: []int{}}
	tops := false
	for _, l := range logs {
		tops = tops || len(l.Top) > 0
	}
	for _, l := range logs {
		out.Tokens = append(out.Tokens, tokenName(l.Piece))
		out.Logs = append(out.Logs, l.value())
		out.Offset = append(out.Offset, l.Offset)
		if !tops {
			continue
		}
		if l.value() == nil {
			out.Top = append(out.Top, nil)
			continue
		}
		top, has := orderedLogs(l.Top), false
		for _, t := range l.Top {
			has = has || t.ID == l.ID
		}
		if !has { // the token itself is always there, as OpenAI says
			top = append(top[:len(top):len(top)], l.TokenLog)
		}
		out.Top = append(out.Top, &top)
	}
	return out
}

// generateLogprobs is SGLang's form: [log probability, id, text or null].
type generateLogprobs struct {
	Input     [][3]any   `json:"input_token_logprobs"`
	Output    [][3]any   `json:"output_token_logprobs"`
	InputTop  [][][3]any `json:"input_top_logprobs,omitempty"`
	OutputTop [][][3]any `json:"output_top_logprobs,omitempty"`
}

func newGenerateLogprobs(c *choice, text bool) *generateLogprobs {
	g := &generateLogprobs{}
	g.Input, g.InputTop = triples(c.input, text)
	g.Output, g.OutputTop = triples(c.logs, text)
	return g
}

func triples(logs []Log, text bool) (own [][3]any, tops [][][3]any) {
	triple := func(t TokenLog) [3]any {
		x := [3]any{t.value(), t.ID, nil}
		if text {
			x[2] = strings.ToValidUTF8(string(t.Piece), "\uFFFD")
		}
		return x
	}
	own = [][3]any{}
	for _, l := range logs {
		own = append(own, triple(l.TokenLog))
		if len(l.Top) == 0 && tops == nil {
			continue
		}
		for len(tops) < len(own)-1 { // null for the first, which nothing predicts
			tops = append(tops, nil)
		}
		var list [][3]any
		for _, t := range l.Top {
			list = append(list, triple(t))
		}
		tops = append(tops, list)
	}
	return own, tops
}

// NoLog is the log probability of a token that has none.
var NoLog = float32(math.NaN())
