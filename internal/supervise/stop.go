package supervise

import (
	"errors"
	"fmt"
	"strings"
)

// errStuck means that a child was killed and is still there.
var errStuck = errors.New("killed and still not gone")

// stop ends all children and returns when they are gone, or, with errStuck, when
// even killing them did not help in time.
func (s *supervisor) stop() error {
	hurry := s.cfg.Hurry
	// One alarm for each of the two waits; the first may ring after it was called off.
	patience, despair := make(chan struct{}), make(chan struct{})
	var cancel func()
	kill := func(why string) {
		cancel()
		hurry, patience = nil, nil // once is enough
		s.say("killing %s: %s", strings.Join(s.running(), ", "), why)
		for _, c := range s.children {
			s.terminate(c, true)
		}
		cancel = s.cfg.clock.AfterFunc(killTimeout, func() { close(despair) })
	}
	for _, c := range s.children {
		s.terminate(c, false)
	}
	if left := s.running(); len(left) > 0 {
		hint := ""
		if hurry != nil {
			hint = "; a second Ctrl-C ends them at once"
		}
		s.say("waiting up to %v for %s: requests under way may finish, and what loads cannot be interrupted%s", s.cfg.StopTimeout, strings.Join(left, ", "), hint)
	}
	rung := patience
	cancel = s.cfg.clock.AfterFunc(s.cfg.StopTimeout, func() { close(rung) })
	defer func() { cancel() }()
	for len(s.running()) > 0 {
		select {
		case event := <-s.events:
			if e, ok := event.(exited); ok {
				e.c.unwatch()
				e.c.cmd = nil
				s.say("%s ended: %s", e.c.Name, e.how)
			}
		case <-hurry:
			kill("asked to hurry")
		case <-patience:
			kill(fmt.Sprintf("not gone %v after SIGTERM", s.cfg.StopTimeout))
		case <-despair:
			return fmt.Errorf("%s: %w", strings.Join(s.running(), ", "), errStuck)
		}
	}
	return nil
}

// running lists the children that run, with their process ids.
func (s *supervisor) running() []string {
	var out []string
	for _, c := range s.children {
		if c.cmd != nil {
			out = append(out, fmt.Sprintf("%s (pid %d)", c.Name, c.cmd.Process.Pid))
		}
	}
	return out
}
