package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tandem-llm/tandem/internal/svc"
)

// signalError is the cause with which a signal cancels a command's context.
type signalError struct{ sig os.Signal }

func (s *signalError) Error() string { return fmt.Sprintf("signal: %v", s.sig) }

func (s *signalError) number() int {
	n, _ := s.sig.(syscall.Signal)
	return int(n)
}

// echo is how soon after the first a signal counts as the same one told twice: a
// wrapper such as timeout(1) signals its child and then the child's whole group.
const echo = 200 * time.Millisecond

// atSecondSignal, if set, runs before the second signal ends the process. It must
// return within a second or two.
var atSecondSignal atomic.Pointer[func()]

// withSignals returns a context that the first SIGINT, SIGTERM or SIGHUP cancels.
// The second ends the process at once: what hangs must not be able to keep it. stop
// gives the signals back their usual meaning.
func withSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	heard := make(chan os.Signal, 2)
	signal.Notify(heard, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup wants a closed terminal to be survived
		signal.Notify(heard, syscall.SIGHUP)
	}
	g := svc.New(parent, "tandem", nil)
	g.Go("signals", func(ctx context.Context, _ *svc.Loop) error {
		select {
		case s := <-heard:
			cancel(&signalError{s})
		case <-ctx.Done():
			return nil
		}
		for first := time.Now(); ; {
			select {
			case s := <-heard:
				if time.Since(first) < echo {
					continue
				}
				if f := atSecondSignal.Load(); f != nil {
					(*f)()
				}
				os.Exit(128 + (&signalError{s}).number())
			case <-ctx.Done():
				return nil
			}
		}
	})
	return ctx, func() {
		signal.Stop(heard)
		g.Stop(nil)
		g.Wait()
		cancel(nil)
	}
}
