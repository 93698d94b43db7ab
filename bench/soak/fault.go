package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

// fault is one kind of harm. do returns when it has been done, and says what it did.
type fault struct {
	name   string
	weight int
	do     func(context.Context, *fleet, *mrand.Rand) (string, error)
}

var faults = []fault{
	{"vanish", 4, vanishing},
	{"garbage", 3, garbage},
	{"freeze, short", 3, freezing(500*time.Millisecond, 2500*time.Millisecond)},
	{"freeze, fenced", 2, freezing(6*time.Second, 12*time.Second)},
	{"kill", 3, signalling(syscall.SIGKILL)},
	{"terminate", 2, signalling(syscall.SIGTERM)},
}

func names() (out []string) {
	for _, f := range faults {
		out = append(out, f.name)
	}
	return out
}

// choose draws a fault by its weight, or the only one that is wanted.
func choose(r *mrand.Rand, only string) fault {
	var bag []fault
	for _, f := range faults {
		if only == "" || only == f.name {
			bag = append(bag, slices.Repeat([]fault{f}, f.weight)...)
		}
	}
	return bag[r.IntN(len(bag))]
}

// victim draws a worker; the router is the one process that clients hold on to.
func victim(f *fleet, r *mrand.Rand) (watch.Process, error) {
	workers := f.pids()[1:]
	p := workers[r.IntN(len(workers))]
	if p.PID == 0 {
		return p, fmt.Errorf("%s does not run", p.Name)
	}
	return p, nil
}

func signalling(sig syscall.Signal) func(context.Context, *fleet, *mrand.Rand) (string, error) {
	return func(ctx context.Context, f *fleet, r *mrand.Rand) (string, error) {
		p, err := victim(f, r)
		if err != nil {
			return "", err
		}
		if err := syscall.Kill(p.PID, sig); err != nil {
			return "", err
		}
		return p.Name, f.replaced(ctx, p)
	}
}

func freezing(least, most time.Duration) func(context.Context, *fleet, *mrand.Rand) (string, error) {
	return func(ctx context.Context, f *fleet, r *mrand.Rand) (string, error) {
		p, err := victim(f, r)
		if err != nil {
			return "", err
		}
		span := least + time.Duration(r.Int64N(int64(most-least)))
		if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
			return "", err
		}
		defer syscall.Kill(p.PID, syscall.SIGCONT)
		wait := time.NewTimer(span)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		return fmt.Sprintf("%s for %v", p.Name, span.Round(time.Millisecond)), nil
	}
}

// vanishing opens streams and ends all their connections at once.
func vanishing(ctx context.Context, f *fleet, r *mrand.Rand) (string, error) {
	const streams = 60
	crowd, err := vanish.OpenAll(ctx, vanish.Addr(f.router), "/v1/completions", streams, func(i int) []byte {
		return fmt.Appendf(nil, `{"prompt":%q,"max_tokens":400,"ignore_eos":true,"stream":true,"temperature":0}`, text(1000+r.IntN(1000)))
	})
	if err != nil {
		return "", err
	}
	wait := time.NewTimer(time.Duration(r.IntN(1500)) * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	took := crowd.Vanish()
	crowd.Wait()
	return fmt.Sprintf("%d clients within %v", streams, took.Round(time.Microsecond)), nil
}

// garbage writes noise to every port of every member.
func garbage(ctx context.Context, f *fleet, r *mrand.Rand) (string, error) {
	n := 0
	for _, addr := range listening(f) {
		for range 5 {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				continue // it may be starting again
			}
			noise := make([]byte, 1+r.IntN(4096))
			rand.Read(noise)
			c.SetDeadline(time.Now().Add(2 * time.Second))
			_, _ = c.Write(noise)
			c.Close()
			n++
		}
	}
	return fmt.Sprintf("%d connections", n), nil
}

// listening returns the TCP addresses on which members listen: HTTP, bootstrap,
// control and data.
func listening(f *fleet) (addrs []string) {
	for _, p := range f.pids() {
		addrs = append(addrs, strings.TrimPrefix(p.URL, "http://"))
		for _, port := range ports(p.PID) {
			addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	return addrs
}
