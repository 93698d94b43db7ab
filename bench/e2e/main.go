// Command e2e measures what disaggregation costs and gives on this machine: it
// runs tandem serve beside a prefill/decode pair, same model, same threads and CPUs
// for computing a prompt, and sends both the same requests in turn.
//
//	go run ./bench/e2e --tandem ./bin/tandem --pairs 20 --tokens 2000
//
// It prints TTFT of a long prompt, ITL of the tokens after it, and the uncovered
// tail: the time from prefill's last computed token to decode's first generated
// one, which a hand-over adds to computing the prompt.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/tandem-llm/tandem/bench/internal/fleet"
)

func main() {
	var c config
	var cpus string
	flag.StringVar(&c.tandem, "tandem", "./bin/tandem", "the executable")
	flag.StringVar(&c.model, "model", "gemma3-270m", "model name or path; \"sim\" for the simulated engine")
	flag.IntVar(&c.tokens, "tokens", 1500, "prompt length, tokens (about)")
	flag.IntVar(&c.generate, "generate", 32, "tokens to generate")
	flag.IntVar(&c.pairs, "pairs", 10, "measured pairs of requests")
	flag.IntVar(&c.threads, "threads", 1, "compute threads of each worker")
	flag.StringVar(&cpus, "cpus", "", "CPUs to use, as 0,2-3; \"none\" pins nothing (default: all that this process may use)")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var rep *report
	var err error
	if c.cpus, err = fleet.CPUs(cpus); err == nil {
		rep, err = measure(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench e2e:", err)
		if ctx.Err() != nil {
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
	tandem, model           string
	tokens, generate, pairs int
	threads                 int
	cpus                    []int
}

// measure starts both systems and sends them requests in turn.
func measure(ctx context.Context, c config) (*report, error) {
	f, err := start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	rep := &report{Model: c.model, Threads: c.threads, Placed: placed(c), Generate: c.generate}
	for i := -1; i < c.pairs; i++ { // the first pair warms up
		// Every prompt begins differently, so that no cache can help.
		prompt := fmt.Sprintf("Report %d of %d. ", i+2, c.pairs+1) + filler(c)
		order := []string{"serve", "pd"}
		if i%2 == 0 {
			order[0], order[1] = order[1], order[0]
		}
		for _, which := range order {
			s, err := f.request(ctx, which, prompt, c.generate)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", which, err, f.Logs())
			}
			rep.Prompt = s.Prompt
			if i < 0 {
				continue
			}
			if which == "serve" {
				rep.serve = append(rep.serve, s)
				continue
			}
			tail, err := f.tail(ctx, s.RID)
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
