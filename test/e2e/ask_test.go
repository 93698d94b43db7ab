//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// question is one request.
type question struct {
	prompt  []int
	tokens  int
	whole   bool              // one JSON document instead of a stream
	label   string            // the client's rid
	header  map[string]string // of the HTTP request
	members map[string]any    // of the body, beside the usual ones
}

func (q question) body() []byte {
	m := map[string]any{"prompt": q.prompt, "max_tokens": q.tokens, "temperature": 0, "stream": !q.whole, "ignore_eos": true}
	if q.label != "" {
		m["rid"] = q.label
	}
	for k, v := range q.members {
		m[k] = v
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// answer is all that a client saw.
type answer struct {
	status  int       // 0: no response
	text    string    // so far
	finish  string    // finish_reason
	done    bool      // [DONE], or a whole document
	code    string    // of an error, as status body or in band
	message string    // of the error
	inBand  bool      // the error came after the first byte
	broken  error     // the connection failed
	first   time.Time // byte of text
	ended   time.Time
}

// String is the answer in one line, for failures.
func (a answer) String() string {
	s := fmt.Sprintf("status %d, %d bytes of text, finish %q, done %v", a.status, len(a.text), a.finish, a.done)
	if a.code != "" {
		s += fmt.Sprintf(", error %s (in band: %v): %s", a.code, a.inBand, a.message)
	}
	if a.broken != nil {
		s += fmt.Sprintf(", connection: %v", a.broken)
	}
	return s
}

// asker keeps no connection: one that stays open would be in the gauges.
var asker = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, MaxConnsPerHost: 0}}

// ask sends a question to url and reads the answer to its end.
func ask(ctx context.Context, url string, q question) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(q.body()))
	if err != nil {
		return answer{broken: err, ended: time.Now()}
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range q.header {
		req.Header.Set(k, v)
	}
	resp, err := asker.Do(req)
	if err != nil {
		return answer{broken: err, ended: time.Now()}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.stream(resp.Body)
	} else {
		body, err := io.ReadAll(resp.Body)
		a.broken = err
		a.take(body)
		a.done = err == nil && a.status == http.StatusOK && a.finish != ""
	}
	a.ended = time.Now()
	return a
}

func (a *answer) stream(body io.Reader) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case !ok:
		case a.done:
			a.broken = errors.New("events follow [DONE]")
		case string(data) == "[DONE]":
			a.done = true
		default:
			a.inBand = true // if it is an error
			a.take(data)
		}
	}
	if err := lines.Err(); err != nil {
		a.broken = err
	}
	a.inBand = a.code != ""
}

// take reads one event or document.
func (a *answer) take(data []byte) {
	var e struct {
		Choices []struct {
			Text   string  `json:"text"`
			Finish *string `json:"finish_reason"`
		} `json:"choices"`
		Error *struct{ Code, Message string } `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		a.broken = fmt.Errorf("not JSON: %.80q", data)
		return
	}
	if e.Error != nil {
		a.code, a.message = e.Error.Code, e.Error.Message
	}
	for _, c := range e.Choices {
		if c.Text != "" && a.first.IsZero() {
			a.first = time.Now()
		}
		a.text += c.Text
		if c.Finish != nil {
			a.finish = *c.Finish
		}
	}
}

// honest says what is wrong with an answer that must be either a complete text or
// a clear error: a real status before the first byte, an error event and no [DONE]
// after it. want is the complete text, "" if it is not known.
func (a answer) honest(want string) error {
	switch {
	case a.done && a.code != "":
		return fmt.Errorf("[DONE] after an error: %v", a)
	case a.done && (a.status != http.StatusOK || a.finish == ""):
		return fmt.Errorf("an end without a finish reason: %v", a)
	case a.done && want != "" && a.text != want:
		return fmt.Errorf("a complete answer with the wrong text: %q, want %q", a.text, want)
	case a.done:
		return nil
	case want != "" && !strings.HasPrefix(want, a.text):
		return fmt.Errorf("wrong text before the error: %q, want %q: %v", a.text, want, a)
	case a.broken != nil:
		return fmt.Errorf("the connection broke instead of an error: %v", a)
	case a.code == "" || a.message == "":
		return fmt.Errorf("neither complete nor an error: %v", a)
	case !a.inBand && (a.status < 400 || a.status == 499):
		return fmt.Errorf("an error without a status of its own: %v", a)
	}
	return nil
}

// is fails the test unless the answer is complete, with that text if it is known.
func (a answer) is(t *testing.T, want string) {
	t.Helper()
	if err := a.honest(want); err != nil || !a.done {
		t.Fatalf("want a complete answer: %v, %v", a, err)
	}
}

// refusedWith fails the test unless the answer is that status with one of these codes.
func (a answer) refusedWith(t *testing.T, status int, codes ...string) {
	t.Helper()
	if a.status != status || !slices.Contains(codes, a.code) || a.done || a.message == "" {
		t.Fatalf("want status %d and code %s: %v", status, strings.Join(codes, " or "), a)
	}
}
