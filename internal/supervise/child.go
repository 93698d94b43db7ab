package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is one Spec and its current run. Only the owner touches it.
type child struct {
	Spec
	out *lineWriter

	run     int       // counts starts; events of an earlier run are not mistaken for this one's
	cmd     *exec.Cmd // nil while it does not run
	since   time.Time // start of the run
	unwatch context.CancelFunc
	ready   bool  // in this run
	was     bool  // ready in some run
	why     error // the last probe's, while not ready
	fails   int   // runs in a row that ended before they were ready
	pause   backoff
}

// start begins a run. An error is treated as a run that ended at once.
func (s *supervisor) start(c *child) {
	c.run++
	c.since = s.cfg.clock.Now()
	c.ready, c.why = false, errors.New("it has just been started")
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	// One writer for both keeps their order. Its goroutine is os/exec's own, and
	// ends with the run.
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.WaitDelay = outputDelay
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		s.ended(c, err.Error(), -1)
		return
	}
	c.cmd = cmd
	s.say("%s runs as pid %d", c.Name, cmd.Process.Pid)
	run := c.run
	ctx, cancel := context.WithCancel(s.group.Context())
	c.unwatch = cancel
	s.watch(ctx, c, run)
	s.group.Task("wait", func(context.Context) {
		cmd.Wait() // what it says is in ProcessState
		c.out.end()
		s.send(exited{c, run, cmd.ProcessState.String(), cmd.ProcessState.ExitCode()})
	})
}

// FinalError says that a child ended in a way that another start does not mend.
type FinalError struct {
	Code int // its exit status: ExitUsage or ExitConfig

	name, how, said string
	args            []string
}

// Error names the child and the status, and repeats what it said last.
func (e *FinalError) Error() string {
	text := fmt.Sprintf("%s. It said:\n%s", e.short(), e.said)
	if e.Code == ExitUsage {
		text += "\nIts command line is: " + Quote(e.args)
	}
	return text
}

func (e *FinalError) short() string {
	return fmt.Sprintf("%s cannot start: %s, which another start does not mend", e.name, e.how)
}

// terminate asks a running child to end, or kills it.
func (s *supervisor) terminate(c *child, kill bool) {
	if c.cmd == nil {
		return
	}
	var err error
	if !kill {
		err = c.cmd.Process.Signal(syscall.SIGTERM)
	}
	if kill || err != nil {
		err = c.cmd.Process.Kill()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.say("%s (pid %d) could not be ended: %v", c.Name, c.cmd.Process.Pid, err)
	}
}

// ended deals with the end of a run and plans the next. It sets s.failure when there
// is none.
func (s *supervisor) ended(c *child, how string, code int) {
	if c.cmd != nil {
		c.unwatch()
		c.cmd = nil
	}
	lived := s.cfg.clock.Now().Sub(c.since)
	if c.ready || lived >= Peace {
		c.fails = 0
	}
	if !c.ready {
		c.fails++
	}
	c.ready, c.why = false, fmt.Errorf("it ended: %s", how)
	// A program in Go that crashes has the status of a wrong command line.
	if code == ExitConfig || code == ExitUsage && !c.was {
		s.failure = &FinalError{Code: code, name: c.Name, how: how, said: c.out.said(), args: c.Args}
		return
	}
	if c.fails >= MaxFailedStarts {
		s.failure = fmt.Errorf("%s cannot start: it ended %d times in a row before it was ready, the last time with: %s. What it printed is above, and its command line is: %s",
			c.Name, c.fails, how, Quote(c.Args))
		return
	}
	pause := c.pause.next(lived)
	s.say("%s ended after %v: %s; starting it again in %v", c.Name, lived.Round(10*time.Millisecond), how, pause)
	run := c.run
	s.cfg.clock.AfterFunc(pause, func() { s.send(due{c, run}) })
}
