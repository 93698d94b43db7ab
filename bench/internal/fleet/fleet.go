package fleet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// startTimeout covers loading a model; a first run may fetch it, too.
const startTimeout = 10 * time.Minute

// Fleet is a set of running systems. The zero value is none.
type Fleet struct {
	procs []*process
	wait  []string // URLs whose /health must answer 200
	group errgroup.Group
}

// launch starts one process.
func (f *Fleet) launch(ctx context.Context, cpus []int, path string, args ...string) (*process, error) {
	p := newProcess(ctx, path, args)
	if err := onCPUs(cpus, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("%s %s: %w", path, args[0], err)
	}
	f.procs = append(f.procs, p)
	f.group.Go(func() error {
		p.err = p.cmd.Wait()
		close(p.done)
		return nil
	})
	return p, nil
}

// Ready returns when all systems serve.
func (f *Fleet) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for _, url := range f.wait {
		for !healthy(ctx, url) {
			for _, p := range f.procs {
				select {
				case <-p.done:
					return fmt.Errorf("%s ended while it started: %v\n%s", p.name(), p.err, p.out.tail())
				default:
				}
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not healthy: %w\n%s", url, ctx.Err(), f.Logs())
			case <-tick.C:
			}
		}
	}
	return nil
}

func healthy(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Stop ends all processes and returns when they have ended.
func (f *Fleet) Stop() {
	for _, p := range f.procs {
		p.stop()
	}
	_ = f.group.Wait() // the processes' errors are in p.err
	f.procs, f.wait = nil, nil
}

// Logs returns the last that each process wrote.
func (f *Fleet) Logs() string {
	var b strings.Builder
	for _, p := range f.procs {
		fmt.Fprintf(&b, "--- %s\n%s\n", p.name(), p.out.tail())
	}
	return b.String()
}

// Kernels returns, by program, the library of CPU kernels that it has loaded.
func (f *Fleet) Kernels() map[string]string {
	out := map[string]string{}
	for _, p := range f.procs {
		if k := p.kernels(); k != "" {
			out[p.name()] = k
		}
	}
	return out
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
