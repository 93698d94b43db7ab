package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// canaryTokens are enough to show a wrong KV cache.
const canaryTokens = 24

// song is what a canary gives.
type song struct {
	text   string
	prompt int           // tokens
	first  time.Duration // until the first text
	took   time.Duration
}

// quiet keeps no connection: one that stays open would be in the gauges.
var quiet = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}

// sing asks for a text and reads it to its end.
func sing(ctx context.Context, router, prompt string, tokens int) (s song, err error) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, router+"/v1/completions", bytes.NewReader(body(prompt, tokens, "cascade-canary")))
	if err != nil {
		return s, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := quiet.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
		return s, fmt.Errorf("status %d: %s", resp.StatusCode, why)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			s.took = time.Since(began)
			return s, nil
		}
		var e struct {
			Choices []struct{ Text string }
			Usage   *struct {
				Prompt int `json:"prompt_tokens"`
			}
			Error *struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return s, fmt.Errorf("event %.100s: %w", data, err)
		}
		if e.Error != nil {
			return s, fmt.Errorf("%s: %s", e.Error.Code, e.Error.Message)
		}
		if e.Usage != nil {
			s.prompt = e.Usage.Prompt
		}
		for _, c := range e.Choices {
			if c.Text != "" && s.first == 0 {
				s.first = time.Since(began)
			}
			s.text += c.Text
		}
	}
	return s, fmt.Errorf("the stream broke off: %v", lines.Err())
}
