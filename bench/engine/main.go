// Command engine compares Tandem with llama.cpp's own server on this machine, in
// interleaved pairs of the same work: decode and prefill speed, the gaps between
// the tokens of running streams while long prompts arrive, and the second turn of
// a chat.
//
//	go run ./bench/engine --tandem ./bin/tandem --llama-server /path/to/llama-server
//
// Both have the same model file, threads, CPUs, KV type (f16), context and slots,
// flash attention, and the same prompts as token ids. Everything is greedy and
// runs to its full length; whether the texts are equal is reported.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c, asJSON, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var rep *report
	if err == nil {
		rep, err = measure(ctx, c)
	}
	if rep != nil && len(rep.Rows) > 0 { // what was measured before an error is not lost
		if asJSON {
			e := json.NewEncoder(os.Stdout)
			e.SetIndent("", "  ")
			_ = e.Encode(rep)
		} else {
			fmt.Print(rep.text())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench engine:", err)
		if ctx.Err() != nil {
			os.Exit(130)
		}
		os.Exit(1)
	}
}
