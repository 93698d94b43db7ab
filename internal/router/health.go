package router

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tandem-llm/tandem/internal/svc"
)

// watch checks one worker's health until ctx ends, on a transport of its own so
// that no leg can keep a check waiting. Checks begin at the interval, however
// long the one before took.
func (r *Router) watch(ctx context.Context, w *worker, l *svc.Loop) error {
	transport := legTransport(r.cfg.Dial)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: noRedirect}
	tick := time.NewTicker(r.cfg.HealthInterval)
	defer tick.Stop()
	for {
		l.Beat()
		r.check(ctx, client, w)
		if ctx.Err() != nil {
			return nil
		}
		l.Progress()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// check asks a worker once how it is, and what it is.
func (r *Router) check(ctx context.Context, client *http.Client, w *worker) {
	began := time.Now()
	code, body, err := get(ctx, client, w.url+"/health")
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		var ne net.Error
		late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
		if late && (took > healthTimeout+ownLag || w.heardLately()) {
			return // this process was starved itself, or the worker answers legs all the while
		}
		r.pool.mu.Lock()
		was := w.ready // one that has not come up yet is no news
		w.silent(err, !late)
		lost := was && !w.ready
		r.pool.mu.Unlock()
		if lost {
			r.log.Warn("worker out of rotation", "worker", w.name, "url", w.url, "err", err)
		}
		return
	}
	var health struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(body, &health) // another kind of worker may answer without a body
	status := code
	answered := func() {
		if status != http.StatusOK || !w.refused.After(began) {
			w.answered(r.group.Context(), status, health.Status)
		}
	}
	if status != http.StatusOK { // at once: what it is can wait
		r.pool.mu.Lock()
		answered()
		r.pool.mu.Unlock()
	}
	code, body, err = get(ctx, client, w.url+"/get_server_info")
	var info serverInfo
	known := err == nil && code == http.StatusOK && json.Unmarshal(body, &info) == nil // otherwise what was known stays
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	if known {
		if w.learn(info, body) {
			r.pool.forget(w)
		}
	}
	if status == http.StatusOK { // together, so that no pair is made of a worker whose layout is not known yet
		answered()
	}
}

// get reads one small answer within the health timeout.
func get(ctx context.Context, client *http.Client, url string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxInfo))
	return resp.StatusCode, body, err
}
