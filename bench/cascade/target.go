package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

// target is the running system.
type target struct {
	router            string
	model             string
	prefills, decodes []string
	processes         []watch.Process
	context           int // KV cells of the smallest worker
}

// loopback refuses every address that is not this machine's own.
func loopback(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return "", fmt.Errorf("%q is not a URL like http://127.0.0.1:30000", raw)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("%s is not this machine: only loopback addresses are accepted", u.Host)
	}
	return "http://" + u.Host, nil
}

// find asks the router for its workers.
func find(ctx context.Context, raw string) (*target, error) {
	router, err := loopback(raw)
	if err != nil {
		return nil, err
	}
	status, body, err := watch.Get(ctx, router+"/get_server_info")
	if err != nil {
		return nil, fmt.Errorf("no router answers: %w: start one with tandem up", err)
	}
	var info struct {
		Role    string `json:"role"`
		Workers []struct {
			Role, URL, Reason string
			Usable            bool
			Info              struct {
				Model   string `json:"model"`
				Context int    `json:"context"`
			} `json:"info"`
		} `json:"workers"`
	}
	if err := json.Unmarshal(body, &info); err != nil || status != http.StatusOK || info.Role != "router" {
		return nil, fmt.Errorf("%s is no router of Tandem: /get_server_info answered %d %.200s", router, status, body)
	}
	t := &target{router: router, processes: []watch.Process{{Name: "router", URL: router}}}
	for _, w := range info.Workers {
		at, err := loopback(w.URL)
		if err != nil {
			return nil, fmt.Errorf("a %s worker: %w", w.Role, err)
		}
		if !w.Usable {
			return nil, fmt.Errorf("%s worker %s is not usable: %s: begin with a healthy system", w.Role, w.URL, w.Reason)
		}
		switch w.Role {
		case "prefill":
			t.prefills = append(t.prefills, at)
		case "decode":
			t.decodes = append(t.decodes, at)
		}
		t.processes = append(t.processes, watch.Process{Name: w.Role + " " + strings.TrimPrefix(at, "http://"), URL: at})
		t.model = w.Info.Model
		if t.context == 0 || w.Info.Context < t.context {
			t.context = w.Info.Context
		}
	}
	return t, nil
}

// String names the system in one line.
func (t *target) String() string {
	return fmt.Sprintf("%s: model %s, %d prefill and %d decode, %d KV cells", t.router, t.model, len(t.prefills), len(t.decodes), t.context)
}
