package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// startTimeout covers loading a model; a first run may fetch it, too.
const startTimeout = 10 * time.Minute

// fleet is tandem serve and a pair behind a router, as child processes.
type fleet struct {
	url    map[string]string
	procs  []*exec.Cmd
	output []*bytes.Buffer
	worker map[string]string // role → URL, for the records
}

func start(ctx context.Context, c config) (*fleet, error) {
	p, err := ports(5)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return "http://127.0.0.1:" + strconv.Itoa(p[i]) }
	common := []string{"--slots", strconv.Itoa(max(4, c.streams+2)), "--context", strconv.Itoa(2*c.tokens + c.streams*(streamTokens+64) + 2048)}
	if c.serveThreads == "" {
		c.serveThreads = c.threads
	}
	if c.model == "sim" {
		common = append(common, "--engine", "sim")
	} else {
		common = append(common, "--model", c.model)
	}
	f := &fleet{url: map[string]string{"serve": at(0), "pd": at(1)}, worker: map[string]string{"prefill": at(2), "decode": at(3)}}
	for _, args := range [][]string{
		append([]string{"serve", "--port", strconv.Itoa(p[0]), "--threads", c.serveThreads}, common...),
		append([]string{"prefill", "--port", strconv.Itoa(p[2]), "--bootstrap-port", strconv.Itoa(p[4]), "--threads", c.threads}, common...),
		append([]string{"decode", "--port", strconv.Itoa(p[3]), "--threads", c.threads}, common...),
		{"router", "--port", strconv.Itoa(p[1]), "--prefill", at(2) + "," + strconv.Itoa(p[4]), "--decode", at(3)},
	} {
		out := &bytes.Buffer{}
		cmd := exec.CommandContext(ctx, c.tandem, args...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			f.stop()
			return nil, fmt.Errorf("%s %s: %w (build it with make build)", c.tandem, args[0], err)
		}
		f.procs, f.output = append(f.procs, cmd), append(f.output, out)
	}
	wait, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, u := range f.url {
		if err := healthy(wait, u); err != nil {
			f.stop()
			return nil, fmt.Errorf("%w\n%s", err, f.logs())
		}
	}
	return f, nil
}

// ports returns n ports that are free now.
func ports(n int) ([]int, error) {
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}

func healthy(ctx context.Context, url string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w", url, ctx.Err())
		case <-tick.C:
		}
	}
}

func (f *fleet) stop() {
	for _, p := range f.procs {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range f.procs {
		_ = p.Wait()
	}
}

func (f *fleet) logs() string {
	var b bytes.Buffer
	for i, o := range f.output {
		fmt.Fprintf(&b, "--- %s\n%s", f.procs[i].Args[1], o.Bytes()[max(0, o.Len()-2000):])
	}
	return b.String()
}

// record is what /debug/rooms/{rid} says.
type record struct {
	Begin time.Time `json:"begin"`
	First float64   `json:"first_token_ms"`
	Steps []struct {
		At    float64 `json:"at_ms"`
		State string  `json:"state"`
	} `json:"steps"`
}

// tail returns the time from prefill's last computed token to decode's first
// generated one. Both processes are on this machine and share its clock.
func (f *fleet) tail(ctx context.Context, rid string) (time.Duration, error) {
	p, err := fetch(ctx, f.worker["prefill"], rid)
	if err != nil {
		return 0, err
	}
	d, err := fetch(ctx, f.worker["decode"], rid)
	if err != nil {
		return 0, err
	}
	for _, s := range p.Steps {
		if s.State == "computed" {
			first := d.Begin.Add(time.Duration(d.First * float64(time.Millisecond)))
			return first.Sub(p.Begin.Add(time.Duration(s.At * float64(time.Millisecond)))), nil
		}
	}
	return 0, fmt.Errorf("prefill's record of %s has no computed step: %+v", rid, p)
}

func fetch(ctx context.Context, url, rid string) (*record, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/rooms/"+rid, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var all []record
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s has no record of %s: %v", url, rid, err)
	}
	return &all[0], nil
}
