// Command tandem serves language models with prefill and decode in separate
// processes. Every role is a subcommand of this one executable; see newRootCmd.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf"
	"github.com/tandem-llm/tandem/internal/supervise"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit status: 0 after success, also
// after a server was asked to stop and did; 128 plus the signal's number if a signal
// cut the work short; 2 if the command line is wrong; 78 if the configuration cannot
// work, however often it is tried; otherwise 1.
func run(args []string) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	root := newRootCmd()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var s *signalError
	if errors.As(context.Cause(ctx), &s) && (errors.Is(err, s) || errors.Is(err, context.Canceled)) {
		return 128 + s.number()
	}
	fmt.Fprintln(os.Stderr, "tandem:", err)
	var config *engine.ConfigError
	var child *supervise.FinalError
	switch {
	case isUsage(err):
		return exitUsage
	case errors.As(err, &config), errors.As(err, &child) && child.Code == supervise.ExitConfig,
		errors.Is(err, gguf.ErrNotGGUF), errors.Is(err, gguf.ErrDamaged):
		return supervise.ExitConfig
	}
	return 1
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "tandem",
		Short: "Serve language models with prefill and decode in separate processes",
		Long: `Tandem serves language models with prefill and decode in separate processes.

A prefill worker computes the KV cache of a prompt, a decode worker takes it over
and generates, and a router pairs them behind an OpenAI-compatible API.

Start here. This fetches what is missing (llama.cpp's libraries, a small model),
starts a router, a prefill and a decode worker, and prints a curl line to try:

  tandem up

Other ways in:

  tandem up --model smollm2-135m          a model that chats (see: tandem model ls)
  tandem up --model path/to/model.gguf    your own
  tandem up --engine sim                  no model at all: a simulated engine
  tandem up --prefill 2 --decode 2        more workers
  tandem serve --model gemma3-270m        one process that does both: the baseline

'tandem up' is for one machine. On several, start the roles yourself: 'tandem
prefill' and 'tandem decode' where the hardware is, then 'tandem router' with their
addresses. 'tandem up --dry-run' prints such command lines.

The first Ctrl-C (or SIGTERM) ends a command in good order, the second at once.`,
		Version:       version(),
		SilenceUsage:  true, // an error says what to do; a page of flags hides it
		SilenceErrors: true, // run prints it, once
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("tandem {{.Version}}\n")
	root.AddCommand(
		newUpCmd(), newServeCmd(), newRouterCmd(), newPrefillCmd(), newDecodeCmd(), newModelCmd(), newLibCmd(), newVersionCmd(),
	)
	judgeUsage(root)
	return root
}

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "tandem", version()) },
	}
}
