//go:build unix

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

const (
	// startTimeout bounds a process's start: llama.cpp's load on a busy machine.
	startTimeout = 30 * time.Second
	// stopTimeout bounds its end after SIGTERM, without a drain.
	stopTimeout = 10 * time.Second
)

// process is one child: what it is started with, and its run.
type process struct {
	name    string
	url     string
	ready   string // path that answers 200 when it takes requests
	program string // executable, if it is another
	args    []string
	log     *tail

	cmd   *exec.Cmd
	ended chan struct{} // closed when it was waited for
	state *os.ProcessState
}

// spawn starts the process and sees to its end with the test's.
func (p *process) spawn(t *testing.T) {
	t.Helper()
	p.log = &tail{}
	p.cmd = exec.Command(cmp.Or(p.program, executable), p.args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = attributes()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // what it says is in ProcessState
		p.state = cmd.ProcessState
	}()
	log := p.log
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT) // a stopped process hears no other signal
		_ = cmd.Process.Kill()
		<-ended
		log.save(t, p.name)
		if t.Failed() {
			t.Logf("%s said last:\n%s", p.name, log)
		}
	})
}

// start spawns the process and waits until it takes requests.
func (p *process) start(t *testing.T) {
	t.Helper()
	p.spawn(t)
	p.awaitReady(t, startTimeout)
}

func (p *process) awaitReady(t *testing.T, within time.Duration) {
	t.Helper()
	until(t, p.name+" is ready", within, func(ctx context.Context) error {
		if p.gone() {
			return fmt.Errorf("%w: it ended: %v", errHopeless, p.state)
		}
		status, body, err := watch.Get(ctx, p.url+p.ready)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s answered %d %s", p.ready, status, body)
		}
		return err
	})
}

// awaitLine waits until the process has said something.
func (p *process) awaitLine(t *testing.T, words string, within time.Duration) {
	t.Helper()
	until(t, fmt.Sprintf("%s says %q", p.name, words), within, func(context.Context) error {
		if said := p.log.all(); !strings.Contains(said, words) {
			if p.gone() {
				return fmt.Errorf("%w: it ended: %v", errHopeless, p.state)
			}
			return errors.New("not yet")
		}
		return nil
	})
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// alive fails the test if the process has ended, or has logged a fault of its own.
func (p *process) alive(t *testing.T) {
	t.Helper()
	if p.gone() {
		t.Fatalf("%s has ended: %v", p.name, p.state)
	}
	for line := range strings.Lines(p.log.all()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "msg=panic") {
			t.Errorf("%s logged: %.1000s", p.name, line)
		}
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v to %s: %v", s, p.name, err)
	}
}

// kill ends the process as a crash would, and returns when it is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.await(t, stopTimeout)
}

// await waits for the process's end and returns its exit status.
func (p *process) await(t *testing.T, within time.Duration) int {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.state.ExitCode()
	case <-timer.C:
		p.signal(t, syscall.SIGQUIT) // its goroutines, into its log
		t.Fatalf("%s has not ended within %v", p.name, within)
		return -1
	}
}

func (p *process) watched() watch.Process {
	return watch.Process{Name: p.name, URL: p.url, PID: p.cmd.Process.Pid}
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const (
	tailBytes = 4 << 20
	tailLines = 60 // shown when a test fails
)

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if len(l.text) > tailBytes {
		l.text = append(l.text[:0], l.text[len(l.text)-tailBytes/2:]...)
	}
	return len(b), nil
}

// all returns everything that is kept.
func (l *tail) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// String returns the last lines, and of a dump of goroutines only who began how
// many.
func (l *tail) String() string {
	said, dump, _ := strings.Cut(l.all(), "\nSIGQUIT: quit")
	lines := strings.Split(strings.TrimSpace(said), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	begun := map[string]int{}
	for line := range strings.Lines(dump) {
		if by, ok := strings.CutPrefix(line, "created by "); ok {
			by, _, _ = strings.Cut(by, " in goroutine")
			begun[strings.TrimSpace(by)]++
		}
	}
	for by, n := range begun {
		lines = append(lines, fmt.Sprintf("%d goroutines begun by %s", n, by))
	}
	return strings.Join(lines, "\n")
}

// save keeps the log as a file if TANDEM_E2E_LOGS names a directory.
func (l *tail) save(t *testing.T, name string) {
	if dir := os.Getenv("TANDEM_E2E_LOGS"); dir != "" {
		path := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_")+"."+name+".log")
		if err := os.WriteFile(path, []byte(l.all()), 0o644); err != nil {
			t.Log(err)
		}
	}
}

// errHopeless ends a wait at once.
var errHopeless = errors.New("no use to wait")

// until polls a condition until it returns nil, and fails the test if it does not
// in time. It returns when it held.
func until(t *testing.T, what string, within time.Duration, holds func(context.Context) error) time.Time {
	t.Helper()
	return untilEvery(t, 10*time.Millisecond, what, within, holds)
}

// untilEvery is until for a condition that costs much to look at.
func untilEvery(t *testing.T, pause time.Duration, what string, within time.Duration, holds func(context.Context) error) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within+time.Second)
	defer cancel()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return time.Now()
		}
		if errors.Is(err, errHopeless) {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
	}
}

// nextPort begins below the range from which the kernel takes the ports of
// outgoing connections: a worker must be able to come back on its own.
var nextPort atomic.Int64

func init() { nextPort.Store(20000 + int64(os.Getpid()%100)*100) }

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) int { return freePorts(t, 1) }

// freePorts returns the first of n ports in a row that nothing listens on.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 1000 {
		first := int(20000 + (nextPort.Add(int64(n))-int64(n)-20000)%12000)
		free := true
		for port := first; port < first+n && free; port++ {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no free ports among a thousand")
	return 0
}
