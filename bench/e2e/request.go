package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// request streams one completion and times its tokens.
func request(ctx context.Context, url, prompt string, generate int) (sample, error) {
	return requestUntil(ctx, url, prompt, generate, func() {})
}

// requestUntil is request; begun is called at the first token. What was timed
// before an error, as the end of ctx, is returned with it.
func requestUntil(ctx context.Context, url, prompt string, generate int, begun func()) (sample, error) {
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": generate, "temperature": 0, "stream": true, "ignore_eos": true,
		"stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return sample{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return sample{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return sample{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return sample{}, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	s := sample{rid: resp.Header.Get("X-Tandem-Rid")}
	last := began
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return s, nil
		}
		var e struct {
			ID      string `json:"id"`
			Choices []struct {
				Text string `json:"text"`
			} `json:"choices"`
			Usage *struct {
				Prompt int `json:"prompt_tokens"`
			} `json:"usage"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Error != nil {
			return s, fmt.Errorf("event %s: %v", data, err)
		}
		if s.rid == "" {
			s.rid = strings.TrimPrefix(e.ID, "cmpl-")
		}
		if e.Usage != nil {
			s.prompt = e.Usage.Prompt
		}
		if len(e.Choices) == 0 || e.Choices[0].Text == "" {
			continue
		}
		now := time.Now()
		if s.ttft == 0 {
			s.ttft = now.Sub(began)
			begun()
		} else {
			s.itl = append(s.itl, now.Sub(last))
		}
		last = now
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	return s, errors.New("the stream ended without [DONE]")
}
