// Command e2e measures what disaggregation costs and gives on this machine: it
// runs tandem serve beside a prefill/decode pair, same model, same threads for
// computing a prompt, and sends both the same requests in turn.
//
//	go run ./bench/e2e --tandem ./bin/tandem --pairs 10
//
// It prints TTFT of a long prompt, ITL of the tokens after it, and the uncovered
// tail: the time from prefill's last computed token to decode's first generated
// one, which a hand-over adds to computing the prompt.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var c config
	flag.StringVar(&c.tandem, "tandem", "./bin/tandem", "the executable")
	flag.StringVar(&c.model, "model", "gemma3-270m", "model name or path; \"sim\" for the simulated engine")
	flag.IntVar(&c.tokens, "tokens", 1500, "prompt length, tokens (about)")
	flag.IntVar(&c.generate, "generate", 32, "tokens to generate")
	flag.IntVar(&c.pairs, "pairs", 10, "measured pairs of requests")
	flag.StringVar(&c.threads, "threads", "1", "compute threads of each worker")
	flag.IntVar(&c.streams, "streams", 4, "with --mixed: streams that run while prompts arrive")
	flag.IntVar(&c.arrivals, "arrivals", 4, "with --mixed: prompts that arrive, one after the other")
	mixed := flag.Bool("mixed", false, "measure the gaps between tokens of running streams while long prompts keep arriving: serve with two threads against a pair with one each")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *mixed {
		text, err := measureMixed(ctx, c)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench e2e:", err)
			os.Exit(1)
		}
		fmt.Print(text)
		return
	}
	rep, err := measure(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench e2e:", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		_ = e.Encode(rep)
		return
	}
	fmt.Print(rep.text())
}

type config struct {
	tandem, model, threads  string
	tokens, generate, pairs int
	streams, arrivals       int
	serveThreads            string // "": as threads
}

// measure starts both systems and sends them requests in turn.
func measure(ctx context.Context, c config) (*report, error) {
	f, err := start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	rep := &report{Model: c.model, Threads: c.threads, Generate: c.generate}
	for i := -1; i < c.pairs; i++ { // the first pair warms up
		// Every prompt begins differently, so that no cache can help.
		prompt := fmt.Sprintf("Report %d of %d. ", i+2, c.pairs+1) + filler(c)
		order := []string{"serve", "pd"}
		if i%2 == 0 {
			order[0], order[1] = order[1], order[0]
		}
		for _, which := range order {
			s, err := request(ctx, f.url[which], prompt, c.generate)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", which, err, f.logs())
			}
			rep.Prompt = s.prompt
			if i < 0 {
				continue
			}
			if which == "serve" {
				rep.serve = append(rep.serve, s)
				continue
			}
			tail, err := f.tail(ctx, s.rid)
			if err != nil {
				return nil, err
			}
			rep.pd, rep.tails = append(rep.pd, s), append(rep.tails, tail)
		}
		fmt.Fprintf(os.Stderr, "\rpair %d of %d", max(i+1, 0), c.pairs)
	}
	fmt.Fprintln(os.Stderr)
	rep.compute()
	return rep, nil
}

// filler returns text of about as many tokens as the prompt should have.
func filler(c config) string {
	words := strings.Fields("the river runs past the old mill where a boat waits for the morning light and the birds sing over green fields")
	var b strings.Builder
	if c.model == "sim" { // its own words are one token each
		words = strings.Fields("w0001 w0022 w0333 w4444")
	}
	for i := range c.tokens {
		b.WriteString(words[(i*7+i/19)%len(words)])
		b.WriteByte(' ')
	}
	return b.String()
}

// sample is one request as its client saw it.
type sample struct {
	rid    string
	prompt int
	ttft   time.Duration
	itl    []time.Duration
}
