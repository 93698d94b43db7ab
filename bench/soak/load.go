package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	deadline  = 20 * time.Second // of every request
	grace     = time.Second      // how much later than it the promise allows an end
	crowd     = 24               // requests at once while capacity is measured
	measuring = 20 * time.Second
	maxOpen   = 4000 // requests at once: more are not sent, and counted
	prompts   = 64   // different ones: each has one right text
	cancelled = 0.05 // share of requests whose client leaves
)

// ask is one request of the load.
type ask struct {
	prompt, tokens int
	stream         bool
	leave          time.Duration // when the client leaves; 0: it stays
}

func draw(r *rand.Rand) ask {
	a := ask{prompt: r.IntN(prompts), tokens: 4 + r.IntN(28), stream: r.IntN(3) > 0}
	if r.Float64() < cancelled {
		a.leave = time.Duration(1+r.IntN(400)) * time.Millisecond
	}
	return a
}

// text is the i-th prompt: most are short, a few are long.
func text(i int) string {
	words := int(8 * math.Exp(float64(i%8)*0.6))
	var b strings.Builder
	fmt.Fprintf(&b, "Chapter %d.", i)
	for w := range words {
		fmt.Fprintf(&b, " %s", nouns[(w*w+w*7+i*13)%len(nouns)])
	}
	return b.String()
}

var nouns = strings.Fields("river stone window garden letter captain winter engine market shadow bridge music paper island doctor kettle")

// ending is how a request ended for its client.
type ending struct {
	At     time.Time     `json:"at"`
	Took   time.Duration `json:"took_ns"`
	First  time.Duration `json:"first_ns"`
	Code   string        `json:"code"` // ok, left, an error's code, or what else happened
	Detail string        `json:"detail,omitempty"`
	ask    ask
	text   string
}

// load sends requests and counts their endings.
type load struct {
	url     string
	client  *http.Client
	open    atomic.Int64
	unsent  atomic.Int64
	running sync.WaitGroup

	mu      sync.Mutex
	endings []ending
}

func newLoad(url string) *load {
	return &load{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 5 * time.Second}}}
}

// take returns the endings since the last call.
func (l *load) take() []ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.endings
	l.endings = nil
	return e
}

func (l *load) one(ctx context.Context, a ask) {
	e := l.request(ctx, a)
	l.mu.Lock()
	l.endings = append(l.endings, e)
	l.mu.Unlock()
}

func (l *load) request(ctx context.Context, a ask) (e ending) {
	began := time.Now()
	defer func() { e.At, e.Took, e.ask = time.Now(), time.Since(began), a }()
	var cancel context.CancelFunc
	if a.leave > 0 {
		ctx, cancel = context.WithTimeout(ctx, a.leave)
		defer cancel()
	}
	body, err := json.Marshal(map[string]any{"prompt": text(a.prompt), "max_tokens": a.tokens, "temperature": 0, "ignore_eos": true, "stream": a.stream})
	if err != nil {
		return ending{Code: "bug", Detail: err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return ending{Code: "bug", Detail: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tandem-Timeout-Ms", fmt.Sprint(deadline.Milliseconds()))
	resp, err := l.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		if e, err = read(resp, a.stream, began); err == nil {
			return e
		}
	}
	if a.leave > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = "left"
		return e
	}
	return ending{Code: "cut", Detail: err.Error()}
}

// read reads an answer. A connection that ends before the answer does is an error.
func read(resp *http.Response, stream bool, began time.Time) (ending, error) {
	type answer struct {
		Choices []struct{ Text string }
		Error   *struct {
			Code    any
			Message string
		}
	}
	if !stream || resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return ending{}, err
		}
		var a answer
		switch err := json.Unmarshal(body, &a); {
		case err != nil:
			return ending{Code: "unreadable", Detail: fmt.Sprintf("%d %.200s", resp.StatusCode, body)}, nil
		case a.Error != nil:
			return ending{Code: fmt.Sprint(a.Error.Code), Detail: a.Error.Message}, nil
		case len(a.Choices) != 1 || resp.StatusCode != http.StatusOK:
			return ending{Code: "unreadable", Detail: fmt.Sprintf("%d %.200s", resp.StatusCode, body)}, nil
		}
		return ending{Code: "ok", text: a.Choices[0].Text}, nil
	}
	var e ending
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			e.Code = "ok"
			return e, nil
		}
		var a answer
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			return ending{Code: "unreadable", Detail: data}, nil
		}
		if a.Error != nil {
			return ending{Code: fmt.Sprint(a.Error.Code), Detail: a.Error.Message, First: e.First}, nil
		}
		if len(a.Choices) > 0 && a.Choices[0].Text != "" {
			if e.First == 0 {
				e.First = time.Since(began)
			}
			e.text += a.Choices[0].Text
		}
	}
	return ending{}, errors.Join(lines.Err(), errors.New("the stream ended without [DONE] and without an error"))
}

// capacity measures how many requests a second the fleet finishes when it always
// has some to do.
func (l *load) capacity(ctx context.Context, seed uint64) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, measuring)
	defer cancel()
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				a := draw(r)
				a.leave = 0
				l.one(ctx, a)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, e := range l.take() {
		switch e.Code {
		case "ok":
			n++
		case "cut": // by the end of the measuring
		default:
			return 0, fmt.Errorf("a request failed before any fault: %s: %s", e.Code, e.Detail)
		}
	}
	return float64(n) / measuring.Seconds(), nil
}

// prove sends requests one by one, which must end well: after a fault a worker is on
// trial until a request has shown that it is whole.
func (l *load) prove(ctx context.Context, n int) error {
	defer l.client.CloseIdleConnections()
	for i := range n {
		if e := l.request(ctx, ask{prompt: i % prompts, tokens: 4, stream: true}); e.Code != "ok" {
			return fmt.Errorf("a request failed when all was healed: %s: %s", e.Code, e.Detail)
		}
	}
	return nil
}

// offer sends requests at a rate, at exponential intervals, until ctx ends. Requests
// under way are finished.
func (l *load) offer(ctx context.Context, rate float64, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1<<32))
	next := time.Now()
	for {
		next = next.Add(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		a := draw(r)
		wait := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			wait.Stop()
			l.running.Wait()
			l.client.CloseIdleConnections()
			return
		case <-wait.C:
		}
		if l.open.Load() >= maxOpen {
			l.unsent.Add(1)
			continue
		}
		l.open.Add(1)
		l.running.Go(func() {
			defer l.open.Add(-1)
			l.one(context.WithoutCancel(ctx), a)
		})
	}
}
