package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/svc"
)

// Events, all sent to the owner.
type (
	exited struct { // a run's process has ended and is reaped
		c    *child
		run  int
		how  string
		code int // exit status; -1: a signal
	}
	probed struct { // a run's health was asked for; err is nil when it is ready
		c   *child
		run int
		err error
	}
	due struct { // a pause before a start is over
		c   *child
		run int
	}
	overdue struct{} // the children had ReadyTimeout
)

type supervisor struct {
	cfg      Config
	group    *svc.Group
	printer  *printer
	own      *lineWriter
	children []*child
	events   chan any
	done     chan struct{} // closed when the owner takes no more events
	began    time.Time
	ready    bool // every child was ready once
	failure  error
}

// Run starts the children and keeps them running until ctx ends, which is no error,
// or until one cannot be started or some are not ready in time, which is. It returns
// when no child runs. It locks the calling goroutine to its thread meanwhile: on
// Linux the children's life hangs on that thread.
func Run(ctx context.Context, cfg Config) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cfg = cfg.withDefaults()
	// Not a child of ctx: printing and waiting go on after it.
	group := svc.New(context.WithoutCancel(ctx), cfg.Name, nil)
	s := &supervisor{cfg: cfg, group: group, events: make(chan any), done: make(chan struct{}), began: cfg.clock.Now()}
	s.openOutput()
	err := s.keep(ctx)
	close(s.done)
	group.Stop(nil)
	if s.printer.close() && !errors.Is(err, errStuck) {
		group.Wait()
	}
	return err
}

func (s *supervisor) openOutput() {
	width := len(s.cfg.Name)
	for _, spec := range s.cfg.Children {
		width = max(width, len(spec.Name))
	}
	s.printer = newPrinter(s.group, s.cfg.Out, width)
	s.own = s.printer.named(s.cfg.Name, 0)
	for i, spec := range s.cfg.Children {
		colour := 0
		if s.cfg.Color {
			colour = colours[i%len(colours)]
		}
		s.children = append(s.children, &child{Spec: spec, out: s.printer.named(spec.Name, colour)})
	}
}

func (s *supervisor) say(format string, args ...any) { fmt.Fprintf(s.own, format+"\n", args...) }

// send hands an event to the owner; false if it takes none any more.
func (s *supervisor) send(event any) bool {
	select {
	case s.events <- event:
		return true
	case <-s.done:
		return false
	}
}

// keep is the owner's loop.
func (s *supervisor) keep(ctx context.Context) error {
	for _, c := range s.children {
		s.start(c)
	}
	stop := s.cfg.clock.AfterFunc(s.cfg.ReadyTimeout, func() { s.send(overdue{}) })
	defer stop()
	for s.failure == nil {
		select {
		case <-ctx.Done():
			s.say("stopping: %v", context.Cause(ctx))
			return s.stop()
		case <-s.cfg.Hurry:
			return s.stop()
		case event := <-s.events:
			s.handle(event)
		}
	}
	var final *FinalError
	if errors.As(s.failure, &final) {
		s.say("giving up: %s", final.short()) // its own message was seen, and is told once more at the end
	} else {
		s.say("giving up: %v", s.failure)
	}
	return errors.Join(s.failure, s.stop())
}

func (s *supervisor) handle(event any) {
	switch e := event.(type) {
	case exited:
		if e.run == e.c.run {
			s.ended(e.c, e.how, e.code)
		}
	case due:
		if e.run == e.c.run {
			s.start(e.c)
		}
	case probed:
		if e.run == e.c.run && e.c.cmd != nil {
			s.probed(e.c, e.err)
		}
	case overdue:
		if missing := s.missing(); !s.ready {
			s.failure = fmt.Errorf("not ready after %v: %s", s.cfg.ReadyTimeout, strings.Join(missing, "; "))
		}
	}
}

func (s *supervisor) probed(c *child, err error) {
	if err != nil {
		c.why = err
		return
	}
	c.ready, c.why, c.fails = true, nil, 0
	if c.was {
		s.say("%s is ready again", c.Name)
	}
	c.was = true
	if s.ready || len(s.missing()) > 0 {
		return
	}
	s.ready = true
	if s.cfg.OnReady != nil {
		s.printer.say(s.cfg.OnReady(s.cfg.clock.Now().Sub(s.began)))
	}
}

// missing lists the children that are not ready now, with the reason.
func (s *supervisor) missing() []string {
	var out []string
	for _, c := range s.children {
		if !c.ready {
			out = append(out, fmt.Sprintf("%s (%v)", c.Name, c.why))
		}
	}
	return out
}
