// Command abort measures what a mass disconnect costs Tandem, and what the death of a
// process does:
//
//		make build && go run ./bench/abort                       # the simulator
//		go run ./bench/abort --model gemma3-270m --storms 60     # a real model
//
//	  - from the moment N streams vanish until every gauge of every process is back;
//	  - tokens per second after such a storm over before it, in pairs, beside the ratio
//	    of two measurements without one;
//	  - CPU time, bytes and allocations of the room protocol beside 100 to 100,000 live rooms;
//	  - how soon a dead and a frozen prefill worker are noticed;
//	  - how long each process takes to be ready again.
//
// Everything runs on loopback and stops by itself. One process's descriptors may not
// do for the largest storm: then it goes through several routers, as the report says.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type config struct {
	tandem, model string
	storms        []int
	rounds, pairs int
	deaths        int
	window        time.Duration
	rooms         []int
	json          bool
}

// mostStreams bounds a storm.
const mostStreams = 10_000

func parse(args []string) (c config, err error) {
	fs := flag.NewFlagSet("abort", flag.ContinueOnError)
	fs.StringVar(&c.tandem, "tandem", "./bin/tandem", "the program")
	fs.StringVar(&c.model, "model", "sim", "model name or file; sim is the simulator")
	storms := fs.String("storms", "60,1000,10000", "streams of the storms; empty for none")
	fs.IntVar(&c.rounds, "rounds", 20, "storms of the smallest size; larger ones have fewer, at least 5")
	fs.IntVar(&c.pairs, "pairs", 20, "pairs of throughput before and after a storm of 60; 0 for none")
	fs.DurationVar(&c.window, "window", 4*time.Second, "how long throughput is measured each time")
	fs.IntVar(&c.deaths, "deaths", 5, "deaths and freezes to time; 0 for none")
	rooms := fs.String("rooms", "100,10000,100000", "live rooms beside which the protocol is measured; empty for none")
	fs.BoolVar(&c.json, "json", false, "print JSON")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if c.storms, err = numbers("--storms", *storms, mostStreams); err != nil {
		return c, err
	}
	if c.rooms, err = numbers("--rooms", *rooms, 1_000_000); err != nil {
		return c, err
	}
	if c.rounds < 1 || c.pairs < 0 || c.deaths < 0 || c.window < time.Second || fs.NArg() > 0 {
		return c, errors.New("--rounds is at least 1, --pairs and --deaths at least 0, --window at least 1s; there are no arguments")
	}
	return c, nil
}

func numbers(flag, list string, most int) (out []int, err error) {
	if list == "" {
		return nil, nil
	}
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("%s: %q is not a number from 1 to %d", flag, word, most)
		}
		out = append(out, n)
	}
	return out, nil
}

func main() {
	c, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var r report
	if err == nil {
		err = r.measure(ctx, c)
	}
	if c.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		_ = e.Encode(r)
	} else {
		fmt.Print(r.text())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench abort:", err)
		stop()
		os.Exit(1)
	}
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05")+" "+format+"\n", args...)
}
