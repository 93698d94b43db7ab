package supervise

import (
	"context"
	"io"
	"time"
)

// Defaults and limits.
const (
	DefaultReadyTimeout = 5 * time.Minute  // loading a large model from a slow disk takes minutes
	DefaultStopTimeout  = 10 * time.Second // children finish or abort their requests in it
	MinPause            = 500 * time.Millisecond
	MaxPause            = 10 * time.Second
	// Peace is how long a child must live for its earlier deaths to be forgotten.
	Peace = time.Minute
	// MaxFailedStarts is how often in a row a child may end before it was ready.
	MaxFailedStarts = 5
	// ExitUsage is the exit status with which a child that was never ready says that
	// its command line is wrong: starting it again is of no use.
	ExitUsage = 2
	// ExitConfig is the exit status with which a child says that its configuration
	// cannot work (EX_CONFIG of sysexits.h): starting it again is of no use either.
	ExitConfig = 78

	killTimeout  = 5 * time.Second        // from SIGKILL to the end; only a process stuck in the kernel needs longer
	outputDelay  = 2 * time.Second        // for the last lines of a child whose output somebody else holds open
	probeEvery   = 200 * time.Millisecond // between two health probes of a child that is not ready
	probeTimeout = 2 * time.Second        // of one probe
)

// Spec is one child.
type Spec struct {
	// Name is what logs call it: "prefill-0".
	Name string
	// Args is its command line; Args[0] is the executable's path.
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Health is the URL that answers 200 when the child is ready.
	Health string
}

// Config of Run.
type Config struct {
	// Children in the order in which they are started. Required.
	Children []Spec
	// Out takes the children's lines and our own, each behind its child's name.
	// Required.
	Out io.Writer
	// Color paints the names, for a terminal.
	Color bool
	// Name stands before our own lines. Default "up".
	Name string
	// OnReady is called once, when every child was ready. It must not block; what it
	// returns is printed without a name before it. May be nil.
	OnReady func(took time.Duration) string
	// ReadyTimeout is how long the children have, all together, to become ready
	// first. Default DefaultReadyTimeout.
	ReadyTimeout time.Duration
	// StopTimeout is how long a child has between SIGTERM and SIGKILL. Default
	// DefaultStopTimeout.
	StopTimeout time.Duration
	// Hurry, once closed, makes Run kill all children at once. May be nil.
	Hurry <-chan struct{}

	clock clock
	probe func(ctx context.Context, url string) error
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "up"
	}
	if c.ReadyTimeout <= 0 {
		c.ReadyTimeout = DefaultReadyTimeout
	}
	if c.StopTimeout <= 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.clock == nil {
		c.clock = realClock{}
	}
	if c.probe == nil {
		c.probe = probe
	}
	return c
}

// clock is time, for tests to hold still.
type clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now, unless stop came first.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
