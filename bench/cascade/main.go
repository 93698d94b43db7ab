// Command cascade kills many open streams of a running Tandem at once, and looks at
// what is left of them: the failure that Tandem exists for, as a demonstration.
//
//	tandem up &
//	go run ./bench/cascade --streams 60 --rounds 3
//
// Each round opens streams with long prompts, waits until some are queued, some
// prefill, some transfer and some decode, and resets all connections in the same
// instant. Then every gauge of the router and the workers must be back where it was
// within one engine step and a second, the next request must give the text it gave
// before, no breaker may be open, and no failure counted: an abort is none.
//
// It ends with status 0 if the system survived, 1 if not, 2 if a phase was never met,
// so that nothing was shown. It speaks to loopback addresses only: it is a load that
// nobody should get by mistake.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses.
const (
	survived = 0
	damaged  = 1
	notShown = 2
)

func main() { os.Exit(run()) }

func run() int {
	var c config
	flag.StringVar(&c.url, "url", "http://127.0.0.1:30000", "the router, on this machine")
	flag.IntVar(&c.streams, "streams", 60, "streams to kill in each round, 1 to 4000")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds")
	flag.DurationVar(&c.gather, "gather", defaultGather, "how long a round waits for its streams to be in every phase")
	flag.Parse()
	if flag.NArg() > 0 || c.streams < 1 || c.streams > maxStreams || c.rounds < 1 {
		flag.Usage()
		return notShown
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := demonstrate(ctx, c, newConsole())
	if errors.Is(ctx.Err(), context.Canceled) {
		fmt.Fprintln(os.Stderr, "cascade: interrupted")
		return 128 + int(syscall.SIGINT)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cascade:", err)
		return max(status, damaged)
	}
	return status
}
