package router

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/router/upstream"
	"github.com/tandem-llm/tandem/internal/svc"
)

// aborter tells one worker which requests ended. Its queue is bounded and one
// loop sends it in batches, each over a fresh connection: 10,000 clients that
// vanish at once cost a worker some dozens of requests, one after the other.
type aborter struct {
	url       string
	connector upstream.Connector
	client    *http.Client
	sent      func(n int, outcome string) // counts
	refused   func(err error)             // hears that nobody listens there

	mu    sync.Mutex
	queue []abort
	wake  chan struct{}
}

// abort is one entry. acked, if not nil, is closed when the worker knows, or
// cannot be told.
type abort struct {
	target api.AbortTarget
	since  time.Time
	acked  chan struct{}
}

func newAborter(url string, c upstream.Connector, dial DialFunc, sent func(int, string)) *aborter {
	return &aborter{
		url: url, connector: c, sent: sent, wake: make(chan struct{}, 1),
		client: &http.Client{Transport: freshTransport(dial), CheckRedirect: noRedirect, Timeout: abortTimeout},
	}
}

// add queues an abort and returns at once. The channel closes when the worker
// has acknowledged it, or when it cannot be told.
func (a *aborter) add(t api.AbortTarget) <-chan struct{} {
	e := abort{target: t, since: time.Now(), acked: make(chan struct{})}
	a.mu.Lock()
	if len(a.queue) >= maxAborts { // the worker has long noticed the oldest by its connection
		close(a.queue[0].acked)
		a.queue = a.queue[1:]
		defer a.sent(1, "dropped")
	}
	a.queue = append(a.queue, e)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return e.acked
}

func (a *aborter) state() svc.QueueState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := svc.QueueState{Len: len(a.queue)}
	if s.Len > 0 {
		s.Oldest = time.Since(a.queue[0].since)
	}
	return s
}

func (a *aborter) take() []abort {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.queue), a.connector.AbortBatch())
	batch := append([]abort(nil), a.queue[:n]...)
	if n == len(a.queue) {
		a.queue = nil
	} else {
		a.queue = a.queue[n:]
	}
	return batch
}

// run sends until ctx ends, then what is queued still, each batch once.
func (a *aborter) run(ctx context.Context, l *svc.Loop) error {
	for {
		l.Beat()
		select {
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
			defer cancel()
			for batch := a.take(); len(batch) > 0; batch = a.take() {
				a.deliver(flush, batch)
			}
			return nil
		case <-a.wake:
		}
		for ctx.Err() == nil {
			batch := a.take()
			if len(batch) == 0 {
				break
			}
			a.deliver(ctx, batch)
			l.Progress()
			if len(batch) < a.connector.AbortBatch() {
				rest(ctx, abortGather) // the first of a storm goes at once, the others together
			}
		}
	}
}

func (a *aborter) deliver(ctx context.Context, batch []abort) {
	defer func() {
		for _, e := range batch {
			close(e.acked)
		}
	}()
	targets := make([]api.AbortTarget, len(batch))
	for i, e := range batch {
		targets[i] = e.target
	}
	path, body := a.connector.Abort(targets)
	for try := 1; ; try++ {
		err := a.post(ctx, path, body)
		if err == nil {
			a.sent(len(batch), "acknowledged")
			return
		}
		gone := refusedBy(err) // and with the process all that it held
		if gone {
			a.refused(err)
		}
		if gone || try == abortTries || ctx.Err() != nil {
			a.sent(len(batch), "failed")
			return
		}
		rest(ctx, abortPause)
	}
}

// rest waits for d or for ctx.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (a *aborter) post(ctx context.Context, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxError)) // the status says it all
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %d", path, resp.StatusCode)
	}
	return nil
}
