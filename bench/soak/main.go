// Command soak runs a whole fleet for hours at most of its capacity, does it harm at
// random about once a minute, and watches what grows.
//
//	make build && go run ./bench/soak --for 1h
//
// It starts `tandem up` with two prefill and two decode workers, measures how many
// requests a second they can do, and offers a share of that, as a Poisson process.
// Faults are drawn from a seed: workers killed, frozen, told to stop, crowds of clients
// that vanish, garbage on every port. It ends with status 1 if
//
//   - a request ended otherwise than well at a time when no fault explains it,
//   - a request ended later than its deadline and a second, or with a cut stream,
//   - a text was not the one that the same prompt had given before,
//   - ten seconds after the load has stopped a gauge is not where it was, or
//   - a process that lived long enough to tell has grown.
//
// Everything stays on loopback and stops by itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Bounds of what may be asked for: this is a load that must end.
const (
	longest  = 24 * time.Hour
	shortest = time.Minute
)

type config struct {
	tandem, engine, model string
	prefill, decode       int
	span, every, sample   time.Duration
	load                  float64
	seed                  uint64
	out, only             string
}

func main() { os.Exit(run()) }

func run() int {
	var c config
	flag.StringVar(&c.tandem, "tandem", "./bin/tandem", "the program")
	flag.StringVar(&c.engine, "engine", "sim", "sim or llama")
	flag.StringVar(&c.model, "model", "gemma3-270m", "model, with --engine llama")
	flag.IntVar(&c.prefill, "prefill", 2, "prefill workers")
	flag.IntVar(&c.decode, "decode", 2, "decode workers")
	flag.DurationVar(&c.span, "for", time.Hour, "how long the load lasts, 1m to 24h")
	flag.DurationVar(&c.every, "fault", time.Minute, "mean time between two faults; 0: none")
	flag.DurationVar(&c.sample, "sample", 10*time.Second, "time between two samples")
	flag.Float64Var(&c.load, "load", 0.8, "offered load, as a share of the measured capacity")
	flag.Uint64Var(&c.seed, "seed", 1, "of arrivals, prompts and faults")
	flag.StringVar(&c.only, "only", "", "do one kind of fault only: "+strings.Join(names(), "; "))
	flag.StringVar(&c.out, "json", "", "file for every sample and every request that did not end well")
	flag.BoolVar(&verbose, "v", false, "say why the fleet is not whole, each time the reason changes")
	flag.Parse()
	if flag.NArg() > 0 || c.span < shortest || c.span > longest || c.load <= 0 || c.load > 2 || c.prefill < 1 || c.decode < 1 || c.sample < time.Second || c.only != "" && !slices.Contains(names(), c.only) {
		flag.Usage()
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	wrong, err := soak(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	if len(wrong) > 0 {
		return 1
	}
	return 0
}
