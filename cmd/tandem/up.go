package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-llm/tandem/internal/fetch"
	"github.com/tandem-llm/tandem/internal/gguf"
	"github.com/tandem-llm/tandem/internal/llamalib"
	"github.com/tandem-llm/tandem/internal/modelstore"
	"github.com/tandem-llm/tandem/internal/supervise"
)

// hurryTimeout is how long the second Ctrl-C waits for the children to be killed.
const hurryTimeout = 2 * time.Second

// upOptions are the flags of tandem up.
type upOptions struct {
	host    string // the router's
	port    int    // the router's; the workers' follow it
	prefill int
	decode  int

	model    string
	modelDir string
	engine   string
	llamaLib string
	threads  int

	pass  []string // flags that workers get as they were given
	extra []string // what stood behind --

	readyTimeout time.Duration
	dryRun       bool
	verbose      bool // let the children log every request
}

// passed are the flags that go to the workers if they were given.
var passed = []string{"context", "slots", "kv-type"}

func newUpCmd() *cobra.Command {
	o := upOptions{}
	var context, slots int
	var kvType string
	cmd := &cobra.Command{
		Use:   "up [-- WORKER FLAGS]",
		Short: "Start a router, prefill and decode workers on this machine, and keep them running",
		Long: `Start a router, prefill and decode workers on this machine, and keep them running.

What is missing is fetched first, once: llama.cpp's libraries and the model. Each
role then runs as a process of its own, its lines behind its name. What dies is
started again, after a pause that grows if it dies often. When everything is ready,
a curl line to try is printed. One Ctrl-C ends all, a second one kills at once.

The router listens on --host and --port. Workers listen on loopback, on the ports
after it: two for each prefill (HTTP and bootstrap), then one for each decode.`,
		Example: `  tandem up
  tandem up --model smollm2-135m --decode 2
  tandem up --engine sim --prefill 4 --decode 4
  tandem up -- --deterministic --verbose
  tandem up --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); len(args) > 0 && n != 0 {
				return fmt.Errorf("unexpected argument %q; flags for the workers go behind --", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.extra = args
			for _, name := range passed {
				if f := cmd.Flags().Lookup(name); f.Changed {
					o.pass = append(o.pass, "--"+name, f.Value.String())
				}
			}
			return o.run(cmd)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&o.model, "model", modelstore.Default, "model name (see tandem model ls) or path of a .gguf file")
	fl.IntVar(&o.prefill, "prefill", 1, "prefill workers")
	fl.IntVar(&o.decode, "decode", 1, "decode workers")
	fl.IntVar(&o.port, "port", defaultRouterPort, "the router's port; the workers take the ports after it")
	fl.StringVar(&o.host, "host", "127.0.0.1", "address the router listens on; there is no authentication")
	fl.StringVar(&o.engine, "engine", "llama", "llama, or sim: a simulator that needs no model")
	fl.StringVar(&o.llamaLib, "llama-lib", "", "directory of the llama.cpp libraries (default: $"+llamalib.EnvDir+", a cache, or fetched)")
	fl.StringVar(&o.modelDir, "model-dir", "", "where pulled models lie (default: $"+modelstore.EnvDir+", or a cache)")
	fl.IntVar(&o.threads, "threads", 0, "compute threads of each worker (default: the cores shared out)")
	fl.IntVar(&context, "context", 0, "KV cells of each worker (default: the worker's)")
	fl.IntVar(&slots, "slots", 0, "requests at once in each worker (default: the worker's)")
	fl.StringVar(&kvType, "kv-type", "", "type of KV: f16, bf16 or q8_0 (default: the worker's)")
	fl.DurationVar(&o.readyTimeout, "ready-timeout", supervise.DefaultReadyTimeout, "how long all may take to become ready")
	fl.BoolVar(&o.dryRun, "dry-run", false, "print the command lines and fetch and start nothing")
	fl.BoolVar(&o.verbose, "verbose", false, "show every line of the children, not their warnings alone")
	return cmd
}

func (o *upOptions) check() error {
	switch {
	case o.prefill < 1 || o.decode < 1:
		return usagef("--prefill %d --decode %d: at least one of each is needed; a single process without a hand-over is: tandem serve", o.prefill, o.decode)
	case o.engine != "llama" && o.engine != "sim":
		return usagef("--engine %s: use llama or sim", o.engine)
	case o.threads < 0:
		return usagef("--threads %d: at least 1, or 0 to share the cores out", o.threads)
	case o.port < 1 || o.lastPort() > 65535:
		return usagef("--port %d: the router and %d workers need the ports %d to %d, and ports end at 65535", o.port, o.prefill+o.decode, o.port, o.lastPort())
	}
	// A mistake behind -- is told once, and before anything is fetched or started.
	for _, role := range []string{"prefill", "decode"} {
		worker, _, err := newRootCmd().Find([]string{role})
		if err != nil {
			return err
		}
		if err := worker.ParseFlags(o.extra); err != nil {
			return usageError{fmt.Errorf("behind --, for the %s workers: %w", role, worker.FlagErrorFunc()(worker, err))}
		}
		if rest := worker.Flags().Args(); len(rest) > 0 {
			return usagef("behind --: %q is no flag of the workers", rest[0])
		}
	}
	if o.threads == 0 {
		// GOMAXPROCS knows of a container's share, NumCPU does not.
		o.threads = max(runtime.GOMAXPROCS(0)/(o.prefill+o.decode), 1)
	}
	return nil
}

func (o *upOptions) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	m, err := o.resolve(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	children := o.plan(exe, m)
	out := cmd.OutOrStdout()
	if o.dryRun {
		for _, c := range children {
			fmt.Fprintln(out, supervise.Quote(c.Args))
		}
		return nil
	}
	if err := o.portsFree(); err != nil {
		return err
	}
	hurry, ended := make(chan struct{}), make(chan struct{})
	kill := func() {
		close(hurry)
		select {
		case <-ended:
		case <-time.After(hurryTimeout):
		}
	}
	atSecondSignal.Store(&kill)
	defer atSecondSignal.Store(nil)
	defer close(ended)
	return supervise.Run(cmd.Context(), supervise.Config{
		Children: children, Out: out, Color: fetch.IsTerminal(out) && os.Getenv("NO_COLOR") == "",
		ReadyTimeout: o.readyTimeout, Hurry: hurry,
		OnReady: func(took time.Duration) string { return o.welcome(m, took) },
	})
}

// upModel is what the workers are told of the model.
type upModel struct {
	name   string // as served
	path   string // empty for sim
	libDir string // empty for sim
	chat   bool   // it has a chat template
}

// resolve finds the library and the model, once for all workers, and fetches what is
// missing unless it is a dry run.
func (o *upOptions) resolve(ctx context.Context, progress io.Writer) (upModel, error) {
	if o.engine == "sim" {
		return upModel{name: "sim", chat: true}, nil
	}
	m := upModel{name: o.model}
	models := modelstore.Options{Dir: o.modelDir, Progress: progress}
	if _, known := modelstore.Lookup(o.model); !known {
		// What is wrong with a path or a name is said before anything is fetched.
		if _, err := modelstore.Resolve(ctx, o.model, models); err != nil {
			return m, err
		}
		m.name = strings.TrimSuffix(filepath.Base(o.model), ".gguf")
	}
	if o.dryRun {
		return m, o.foresee(ctx, &m)
	}
	lib, err := llamalib.Find(ctx, llamalib.Options{Dir: o.llamaLib, Progress: progress})
	if err != nil {
		return m, err
	}
	path, err := modelstore.Resolve(ctx, o.model, models)
	if err != nil {
		return m, err
	}
	info, err := gguf.ReadInfo(path)
	if err != nil {
		return m, err
	}
	if m.path, err = filepath.Abs(path); err != nil {
		return m, err
	}
	m.libDir, m.chat = lib.Dir, info.ChatTemplate != ""
	return m, nil
}

// foresee fills in where the library and the model are or would be.
func (o *upOptions) foresee(ctx context.Context, m *upModel) error {
	m.libDir = "DIRECTORY_TO_BE_FETCHED"
	if lib, err := llamalib.Find(ctx, llamalib.Options{Dir: o.llamaLib, Offline: true}); err == nil {
		m.libDir = lib.Dir
	} else if o.llamaLib != "" {
		return err
	}
	opts := modelstore.Options{Dir: o.modelDir, Offline: true}
	k, known := modelstore.Lookup(o.model)
	path, err := modelstore.Resolve(ctx, o.model, opts)
	if err != nil && known {
		path, _, err = modelstore.Path(k, opts)
	}
	if err != nil {
		return err
	}
	m.path, err = filepath.Abs(path)
	return err
}
