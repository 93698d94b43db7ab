package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

// deaths is how long it took to notice a prefill worker that died or froze, in ms.
type deaths struct {
	How     string    `json:"how"`
	Suspect []float64 `json:"suspected_by_decode_ms"` // a dead one is fenced without a suspicion
	Fence   []float64 `json:"fenced_by_decode_ms"`
	Router  []float64 `json:"out_of_rotation_ms"`
}

func (d *deaths) row() string {
	suspect := "–"
	if len(d.Suspect) > 0 {
		suspect = span(d.Suspect)
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s |", d.How, len(d.Fence), suspect, span(d.Fence), span(d.Router))
}

func span(v []float64) string {
	return fmt.Sprintf("%.0f ms (most %.0f)", stats.Median(v), stats.Quantile(v, 1))
}

const noticeFor = 20 * time.Second

// notice harms prefill with a signal and times who notices it when.
func (s *system) notice(ctx context.Context, sig syscall.Signal, into *deaths) error {
	if _, err := client.Complete(ctx, s.pair.Router, client.Request{Prompt: words(20, int(s.opened.Add(1))), Generate: 2}); err != nil {
		return err // it also makes the session
	}
	if err := s.fleet.Signal(s.pair.Prefill, sig); err != nil {
		return err
	}
	harmed := time.Now()
	var suspect, fence, router time.Time
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for fence.IsZero() || router.IsZero() {
		if time.Since(harmed) > noticeFor {
			return fmt.Errorf("after %v: suspected %v, fenced %v, out of rotation %v", noticeFor, !suspect.IsZero(), !fence.IsZero(), !router.IsZero())
		}
		state, err := s.peerState(ctx)
		if err != nil {
			return err
		}
		switch now := time.Now(); {
		case state == "suspect" && suspect.IsZero():
			suspect = now
		case (state == "fenced" || state == "") && fence.IsZero():
			fence = now
		}
		usable, err := s.usable(ctx)
		if err != nil {
			return err
		}
		if !usable && router.IsZero() {
			router = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if !suspect.IsZero() {
		into.Suspect = append(into.Suspect, stats.Ms(suspect.Sub(harmed)))
	}
	into.Fence = append(into.Fence, stats.Ms(fence.Sub(harmed)))
	into.Router = append(into.Router, stats.Ms(router.Sub(harmed)))
	return nil
}

// peerState is what decode thinks of its prefill worker; "" if it knows none.
func (s *system) peerState(ctx context.Context) (string, error) {
	var peers struct {
		Peers []struct {
			State     string
			Connected bool
		}
	}
	if err := get(ctx, s.pair.Decode+"/debug/peers", &peers); err != nil {
		return "", err
	}
	state := ""
	for _, p := range peers.Peers {
		if p.Connected || state == "" {
			state = p.State
		}
	}
	return state, nil
}

func (s *system) usable(ctx context.Context) (bool, error) {
	var info struct {
		Workers []struct {
			Role   string
			Usable bool
		}
	}
	if err := get(ctx, s.pair.Router+"/get_server_info", &info); err != nil {
		return false, err
	}
	for _, w := range info.Workers {
		if w.Role == "prefill" && !w.Usable {
			return false, nil
		}
	}
	return true, nil
}

func get(ctx context.Context, url string, into any) error {
	status, body, err := watch.Get(ctx, url)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, status)
	}
	return json.Unmarshal(body, into)
}

// restarts is how long each process takes from its start until it is ready, in ms.
type restarts struct {
	Role  string    `json:"role"`
	Ready []float64 `json:"ready_ms"`
}

// restart kills and starts each process once.
func (s *system) restart(ctx context.Context, into map[string]*restarts) error {
	for _, p := range []struct{ role, url, path string }{
		{"prefill", s.pair.Prefill, "/readyz"}, {"decode", s.pair.Decode, "/readyz"}, {"router", s.pair.Router, "/health"},
	} {
		took, err := s.fleet.Again(ctx, p.url, p.path)
		if err != nil {
			return err
		}
		if into[p.role] == nil {
			into[p.role] = &restarts{Role: p.role}
		}
		into[p.role].Ready = append(into[p.role].Ready, stats.Ms(took))
	}
	return s.fleet.Ready(ctx)
}
