package fleet

import (
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end before it is killed.
const stopTimeout = 10 * time.Second

// process is one child.
type process struct {
	cmd  *exec.Cmd
	stop context.CancelFunc
	out  *ring
	done chan struct{} // closed after err is set
	err  error
}

func newProcess(ctx context.Context, path string, args []string) *process {
	ctx, stop := context.WithCancel(ctx)
	p := &process{cmd: exec.CommandContext(ctx, path, args...), stop: stop, out: &ring{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTimeout
	p.cmd.SysProcAttr = diesWithUs()
	return p
}

// name is the program and its subcommand.
func (p *process) name() string {
	n := filepath.Base(p.cmd.Path)
	if a := p.cmd.Args; len(a) > 1 && a[1][0] != '-' {
		n += " " + a[1]
	}
	return n
}

// ring keeps the last of what was written.
type ring struct {
	mu  sync.Mutex
	buf []byte
}

// ringBytes is enough for the lines that say why.
const ringBytes = 8 << 10

func (r *ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = append(r.buf, b...)
	if n := len(r.buf) - ringBytes; n > 0 {
		r.buf = append(r.buf[:0], r.buf[n:]...)
	}
	return len(b), nil
}

func (r *ring) tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.buf[max(0, len(r.buf)-2000):])
}
