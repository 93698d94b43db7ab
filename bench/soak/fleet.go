package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

const (
	startTimeout = 5 * time.Minute  // a first run may fetch libraries and a model
	backTimeout  = 90 * time.Second // after a fault: a load, or a freeze and a fence
)

// fleet is a running `tandem up`.
type fleet struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	joined sync.WaitGroup
	once   sync.Once
	log    *os.File
	router string
	all    []watch.Process // router first; PIDs change, see pids
}

func startFleet(ctx context.Context, c config) (*fleet, error) {
	port, err := portRange(1 + 2*c.prefill + c.decode)
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "tandem-soak-*.log")
	if err != nil {
		return nil, err
	}
	args := []string{"up", "--port", strconv.Itoa(port), "--engine", c.engine, "--prefill", strconv.Itoa(c.prefill), "--decode", strconv.Itoa(c.decode)}
	if c.engine != "sim" {
		args = append(args, "--model", c.model)
	}
	f := &fleet{cmd: exec.Command(c.tandem, args...), ended: make(chan struct{}), log: log, router: "http://127.0.0.1:" + strconv.Itoa(port)}
	f.cmd.Stdout, f.cmd.Stderr = log, log
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for soak, which then stops it in order
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it with make build", err)
	}
	f.joined.Go(func() { _ = f.cmd.Wait(); close(f.ended) })
	if err := f.whole(ctx, c.prefill+c.decode, startTimeout); err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// portRange finds n free ports in a row.
func portRange(n int) (int, error) {
next:
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		first := l.Addr().(*net.TCPAddr).Port
		l.Close()
		for p := first; p < first+n; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				continue next
			}
			l.Close()
		}
		return first, nil
	}
	return 0, fmt.Errorf("no %d free ports in a row", n)
}

// whole waits until the router is healthy and can use n workers.
func (f *fleet) whole(ctx context.Context, n int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := "it does not answer"
	for {
		status, body, err := watch.Get(ctx, f.router+"/get_server_info")
		var info struct {
			Workers []struct {
				Role, URL, Reason string
				Usable            bool
			} `json:"workers"`
		}
		if err == nil && status == http.StatusOK && json.Unmarshal(body, &info) == nil {
			all, lost := []watch.Process{{Name: "router", URL: f.router}}, ""
			for i, w := range info.Workers {
				if !w.Usable {
					lost = fmt.Sprintf("%s %s is not usable: %s", w.Role, w.URL, w.Reason)
				}
				all = append(all, watch.Process{Name: fmt.Sprintf("%s %d", w.Role, i), URL: w.URL})
			}
			if lost == "" && len(info.Workers) == n {
				f.all = all
				return nil
			}
			if lost != last {
				detail("%s", lost)
			}
			last = lost
		}
		select {
		case <-f.ended:
			return fmt.Errorf("tandem up has ended, see %s", f.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("not whole after %v: %s; see %s", within, last, f.log.Name())
		case <-tick.C:
		}
	}
}

// replaced waits until a member runs again, as another process, and is ready.
func (f *fleet) replaced(ctx context.Context, was watch.Process) error {
	ctx, cancel := context.WithTimeout(ctx, backTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, p := range f.pids() {
			if p.URL != was.URL || p.PID == 0 || p.PID == was.PID {
				continue
			}
			if status, _, err := watch.Get(ctx, p.URL+"/readyz"); err == nil && status == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s (pid %d) was not replaced within %v", was.Name, was.PID, backTimeout)
		case <-tick.C:
		}
	}
}

// pids fills in the process of each member by the port it was told to listen on.
// A member that is being started again has none.
func (f *fleet) pids() []watch.Process {
	byPort := map[string]int{}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if parent(pid) != f.cmd.Process.Pid {
			continue
		}
		args := bytes.Split(line, []byte{0})
		for i := range args[:len(args)-1] {
			if string(args[i]) == "--port" {
				byPort[string(args[i+1])] = pid
			}
		}
	}
	out := make([]watch.Process, len(f.all))
	for i, p := range f.all {
		p.PID = byPort[p.URL[strings.LastIndexByte(p.URL, ':')+1:]]
		out[i] = p
	}
	return out
}

// parent returns a process's parent, 0 if there is no such process.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	after := stat[bytes.LastIndexByte(stat, ')')+1:] // the name may contain anything
	fields := strings.Fields(string(after))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// resident returns the resident memory of a process in bytes, 0 if it is gone.
func resident(pid int) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// stop ends the fleet, kindly and then not.
func (f *fleet) stop() {
	f.once.Do(func() {
		for _, p := range f.pids() {
			if p.PID > 0 {
				_ = syscall.Kill(p.PID, syscall.SIGCONT)
			}
		}
		_ = f.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-f.ended:
		case <-time.After(45 * time.Second):
			_ = f.cmd.Process.Kill()
		}
		f.joined.Wait()
		f.log.Close()
	})
}
