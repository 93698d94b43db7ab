package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-llm/tandem/bench/internal/fleet"
)

// tests in the order in which they run.
var tests = []string{"decode", "prefill", "mixed", "chat"}

type config struct {
	tandem, llama, model string
	file                 string // of the model
	cpus                 []int
	threads, pairs       int
	only                 []string

	streams          []int // decode
	prompt, generate int
	prefill          []int // prompt lengths
	rounds, running  int   // mixed
	arrivals, long   int
	chat             int // tokens of the first turn
}

func parse(args []string) (c config, asJSON bool, err error) {
	f := flag.NewFlagSet("engine", flag.ContinueOnError)
	var cpus, only, streams, prefill string
	f.StringVar(&c.tandem, "tandem", "./bin/tandem", "the executable")
	f.StringVar(&c.llama, "llama-server", os.Getenv("LLAMA_SERVER"), "llama.cpp's server; \"none\" leaves it out (default $LLAMA_SERVER, or llama-server on PATH)")
	f.StringVar(&c.model, "model", "gemma3-270m", "model name or path of a .gguf file")
	f.StringVar(&cpus, "cpus", "", "CPUs to use, as 0,2-3; \"none\" pins nothing (default: all that this process may use)")
	f.IntVar(&c.threads, "threads", 1, "compute threads of each worker; mixed gives the single servers twice as many as each worker of the pair")
	f.IntVar(&c.pairs, "pairs", 20, "measured pairs of decode, prefill and chat")
	f.StringVar(&only, "only", "", "tests to run, of decode,prefill,mixed,chat (default: all)")
	f.StringVar(&streams, "streams", "1,8,32", "decode: concurrent streams")
	f.IntVar(&c.prompt, "prompt", 32, "decode: tokens of each stream's prompt")
	f.IntVar(&c.generate, "generate", 96, "decode: tokens of each stream")
	f.StringVar(&prefill, "prefill", "512,2000", "prefill: tokens of the prompts")
	f.IntVar(&c.rounds, "rounds", 5, "mixed: measured rounds")
	f.IntVar(&c.running, "running", 4, "mixed: streams that run while prompts arrive")
	f.IntVar(&c.arrivals, "arrivals", 3, "mixed: prompts of each round, one after the other")
	f.IntVar(&c.long, "long", 2000, "mixed: tokens of the arriving prompts")
	f.IntVar(&c.chat, "turn", 1500, "chat: tokens of the first turn")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	if err := f.Parse(args); err != nil {
		return c, asJSON, err
	}
	if f.NArg() > 0 {
		return c, asJSON, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	c.only = tests
	if only != "" {
		c.only = strings.Split(only, ",")
	}
	for _, t := range c.only {
		if !slices.Contains(tests, t) {
			return c, asJSON, fmt.Errorf("--only %s: the tests are %s", t, strings.Join(tests, ", "))
		}
	}
	if c.cpus, err = fleet.CPUs(cpus); err != nil {
		return c, asJSON, err
	}
	if c.streams, err = numbers("streams", streams); err != nil {
		return c, asJSON, err
	}
	if c.prefill, err = numbers("prefill", prefill); err != nil {
		return c, asJSON, err
	}
	if min(c.threads, c.pairs, c.prompt, c.generate, c.rounds, c.running, c.arrivals, c.long, c.chat) < 1 {
		return c, asJSON, errors.New("numbers must be at least 1")
	}
	if c.llama == "none" {
		c.llama = ""
		return c, asJSON, nil
	}
	c.llama, err = fleet.FindLlamaServer(c.llama)
	return c, asJSON, err
}

func numbers(name, list string) (out []int, err error) {
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--%s %s: write it as 1,8,32", name, list)
		}
		out = append(out, n)
	}
	return out, nil
}
