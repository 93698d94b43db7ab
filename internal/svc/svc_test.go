package svc

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestALoopThatPanicsIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(t.Context(), "test", quiet())
		var runs atomic.Int32
		g.Go("flaky", func(ctx context.Context, l *Loop) error {
			if runs.Add(1) < 3 {
				panic("boom")
			}
			<-ctx.Done()
			return nil
		})
		<-time.After(time.Second)
		synctest.Wait()
		if got := g.Loops()[0]; got.Ended || got.Restarts != 2 || runs.Load() != 3 {
			t.Fatalf("after two panics: %+v, runs %d; want a live loop on its third run", got, runs.Load())
		}
		g.Stop(nil)
		g.Wait()
	})
}

func TestALoopThatKeepsPanickingIsReportedDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(t.Context(), "test", quiet())
		g.Go("broken", func(context.Context, *Loop) error { panic("always") })
		g.Wait()
		if got := g.Loops()[0]; !got.Ended || got.Err == "" {
			t.Fatalf("a loop past its restarts: %+v; want ended with the error", got)
		}
		if g.Panics() != MaxRestarts+1 {
			t.Fatalf("panics counted %d, want %d", g.Panics(), MaxRestarts+1)
		}
	})
}

func TestAPanickingTaskEndsAlone(t *testing.T) {
	g := New(t.Context(), "test", quiet())
	g.Task("connection", func(context.Context) { panic("bad bytes") })
	done := make(chan struct{})
	g.Task("connection", func(context.Context) { close(done) })
	<-done
	g.Stop(nil)
	g.Wait()
	if n := g.Tasks()["connection"]; n != 0 {
		t.Fatalf("%d tasks still counted after Wait", n)
	}
}

func TestStopReachesEveryLoopWithItsCause(t *testing.T) {
	g := New(t.Context(), "test", quiet())
	want := errors.New("shutting down")
	got := make(chan error, 1)
	g.Go("waiter", func(ctx context.Context, l *Loop) error {
		<-ctx.Done()
		got <- context.Cause(ctx)
		return ctx.Err()
	})
	g.Stop(want)
	g.Wait()
	if err := <-got; !errors.Is(err, want) {
		t.Fatalf("cause %v, want %v", err, want)
	}
}
