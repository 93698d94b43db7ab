package client

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

// Request is one completion, greedy and of exactly Generate tokens.
type Request struct {
	Prompt   any // a text or token ids
	Generate int
	// Cache lets llama-server reuse a prompt's beginning; Tandem's workers decide that themselves.
	Cache bool
	Begun func() // called at the first token; may be nil
}

// Event is one piece of text as it came.
type Event struct {
	At    time.Duration // since the request was sent
	Bytes int           // of text
}

// Sample is one request as its client saw it.
type Sample struct {
	RID       string
	Text      string
	Prompt    int // tokens, as the server counts them
	Generated int
	Cached    int // of the prompt's
	Began     time.Time
	Events    []Event
	End       time.Duration
}

// TTFT is the time to the first text; an answer without any has the time to its end.
func (s *Sample) TTFT() time.Duration {
	if len(s.Events) == 0 {
		return s.End
	}
	return s.Events[0].At
}

// Gaps are the times between tokens.
func (s *Sample) Gaps() (out []time.Duration) {
	for i := 1; i < len(s.Events); i++ {
		out = append(out, s.Events[i].At-s.Events[i-1].At)
	}
	return out
}

// transport has a connection for every stream.
var transport = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}

// Complete streams a completion. What was timed before an error, as the end of
// ctx, is returned with it.
func Complete(ctx context.Context, url string, r Request) (Sample, error) {
	body, err := json.Marshal(map[string]any{
		"prompt": r.Prompt, "max_tokens": r.Generate, "temperature": 0, "ignore_eos": true, "cache_prompt": r.Cache,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return Sample{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return Sample{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	s := Sample{Began: time.Now()}
	resp, err := transport.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return s, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	s.RID = resp.Header.Get("X-Tandem-Rid")
	return s, s.read(resp.Body, r.Begun)
}

// chunk is one event of the stream.
type chunk struct {
	ID      string `json:"id"`
	Choices []struct {
		Text string `json:"text"`
	} `json:"choices"`
	Usage *struct {
		Prompt    int `json:"prompt_tokens"`
		Generated int `json:"completion_tokens"`
		Details   struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func (s *Sample) read(body io.Reader, begun func()) error {
	var text strings.Builder
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		now := time.Since(s.Began)
		if data == "[DONE]" {
			s.Text = text.String()
			if s.Prompt == 0 || s.Generated == 0 {
				return errors.New("the stream has no usage")
			}
			return nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil || c.Error != nil {
			return fmt.Errorf("event %s: %v", data, err)
		}
		if s.RID == "" {
			s.RID = strings.TrimPrefix(c.ID, "cmpl-")
		}
		if c.Usage != nil {
			s.Prompt, s.Generated, s.Cached = c.Usage.Prompt, c.Usage.Generated, c.Usage.Details.Cached
		}
		s.End = now
		if len(c.Choices) == 0 || c.Choices[0].Text == "" {
			continue
		}
		s.Events = append(s.Events, Event{now, len(c.Choices[0].Text)})
		text.WriteString(c.Choices[0].Text)
		if len(s.Events) == 1 && begun != nil {
			begun()
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the stream ended without [DONE]")
}
