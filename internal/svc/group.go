package svc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Restart pauses of a loop that panicked: doubled each time, from Min to Max.
const (
	MinRestartPause = 50 * time.Millisecond
	MaxRestartPause = 5 * time.Second
	// MaxRestarts panics of one loop, without a minute's peace between them,
	// make it dead: something is broken that a restart does not mend.
	MaxRestarts = 5
	// Peace is how long a restarted loop must live for its panics to be forgotten.
	Peace = time.Minute
)

// ErrStopped is the cancel cause of a Group that was stopped without another.
var ErrStopped = errors.New("stopped")

// Group is one component's goroutines and queues.
type Group struct {
	name   string
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	loops  []*Loop
	queues []*queue
	tasks  map[string]*atomic.Int64
	panics atomic.Uint64
}

// New returns an empty group whose context is a child of ctx. log may be nil.
func New(ctx context.Context, name string, log *slog.Logger) *Group {
	if log == nil {
		log = slog.Default()
	}
	g := &Group{name: name, log: log, tasks: map[string]*atomic.Int64{}}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// Context ends when the group is stopped.
func (g *Group) Context() context.Context { return g.ctx }

// Name returns the component's name.
func (g *Group) Name() string { return g.name }

// Stop asks everything to end. It does not wait. A nil cause means ErrStopped.
func (g *Group) Stop(cause error) {
	if cause == nil {
		cause = ErrStopped
	}
	g.cancel(cause)
}

// Wait returns when every loop and task has ended. Call Stop first.
func (g *Group) Wait() { g.wg.Wait() }

// Go runs a loop until it returns or the group stops. After a panic it is
// started again; a returned error other than the context's is logged.
func (g *Group) Go(name string, fn func(context.Context, *Loop) error) *Loop {
	l := &Loop{name: g.name + "/" + name}
	l.Beat()
	g.mu.Lock()
	g.loops = append(g.loops, l)
	g.mu.Unlock()
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		defer l.ended.Store(true)
		g.supervise(l, fn)
	}()
	return l
}

func (g *Group) supervise(l *Loop, fn func(context.Context, *Loop) error) {
	pause := MinRestartPause
	for {
		began := time.Now()
		err := g.guard(l.name, func() error { return fn(g.ctx, l) })
		var p *PanicError
		if !errors.As(err, &p) {
			if err != nil && g.ctx.Err() == nil {
				l.fail(err)
				g.log.Error("loop ended", "loop", l.name, "err", err)
			}
			return
		}
		if time.Since(began) > Peace {
			l.restarts.Store(0)
			pause = MinRestartPause
		}
		if l.restarts.Add(1) > MaxRestarts {
			l.fail(err)
			g.log.Error("loop is dead: it panicked too often", "loop", l.name, "restarts", MaxRestarts, "err", err)
			return
		}
		select {
		case <-g.ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, MaxRestartPause)
	}
}

// Task runs work that ends by itself; a panic in it is logged and ends it alone.
func (g *Group) Task(name string, fn func(context.Context)) {
	n := g.taskCounter(name)
	n.Add(1)
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		defer n.Add(-1)
		_ = g.guard(g.name+"/"+name, func() error { fn(g.ctx); return nil })
	}()
}

func (g *Group) taskCounter(name string) *atomic.Int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, ok := g.tasks[name]
	if !ok {
		n = new(atomic.Int64)
		g.tasks[name] = n
	}
	return n
}

// PanicError is a recovered panic.
type PanicError struct {
	Value any
	Stack []byte
}

// Error prints the panic's value.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

func (g *Group) guard(name string, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			g.panics.Add(1)
			p := &PanicError{Value: v, Stack: debug.Stack()}
			g.log.Error("panic", "in", name, "value", fmt.Sprint(v), "stack", string(p.Stack))
			err = p
		}
	}()
	return fn()
}

// Panics returns the panics recovered since the group began.
func (g *Group) Panics() uint64 { return g.panics.Load() }
