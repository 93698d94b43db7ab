package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf"
	"github.com/tandem-llm/tandem/internal/llamalib"
	"github.com/tandem-llm/tandem/internal/modelstore"
	"github.com/tandem-llm/tandem/internal/worker"
)

func newPrefillCmd() *cobra.Command {
	return newWorkerCmd(worker.Prefill, "prefill", "Run a prefill worker: it computes prompts' KV and hands it over",
		`A prefill worker computes the KV cache of prompts and hands it to decode workers.
It serves legs of pairs only: send requests to the router (tandem router).

Decode workers find it at --bootstrap-port. Its control and data ports are
announced there; fix them with --control-port and --data-port behind a firewall.

SIGTERM drains: it leaves the registry, finishes rooms that a decode waits for,
and ends. A second signal ends it at once.`)
}

func newDecodeCmd() *cobra.Command {
	return newWorkerCmd(worker.Decode, "decode", "Run a decode worker: it takes KV over and generates",
		`A decode worker takes prompts' KV over from prefill workers and generates.
It dials them: it needs no open port but its HTTP one. A request that comes to it
without a room is computed here from the start.

Its model, KV type and library must be those of the prefill workers: the layout is
compared when they meet, and a difference is refused naming both.`)
}

func newServeCmd() *cobra.Command {
	return newWorkerCmd(worker.Serve, "serve", "Run one worker that does both, without a hand-over: the baseline",
		`tandem serve computes prompts and generates in one process, behind the same API. It
uses the same schedule as a pair of workers, so that the two can be compared.`)
}

// workerFlags are the flags of the three worker commands.
type workerFlags struct {
	worker.Config
	model    string
	name     string
	llamaLib string
	modelDir string
	context  int
	slots    int
	chunk    int
	offline  bool
	logs     logFlags
}

func newWorkerCmd(role worker.Role, use, short, long string) *cobra.Command {
	f := workerFlags{}
	f.Role = role
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		Example: fmt.Sprintf("  tandem %s --model gemma3-270m --port 30001\n  tandem %s --engine sim --port 30001", use, use),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.model, "model", modelstore.Default, "model name (see tandem model ls) or path of a .gguf file")
	fl.StringVar(&f.name, "model-name", "", "name to serve the model under (default: its own)")
	fl.StringVar(&f.Host, "host", worker.DefaultHost, "address to listen on")
	port := 0
	if role == worker.Serve { // clients come here, as they do to a router
		port = 30000
	}
	fl.IntVar(&f.Port, "port", port, "HTTP port; 0 picks a free one")
	if role == worker.Prefill {
		fl.IntVar(&f.BootstrapPort, "bootstrap-port", worker.DefaultBootstrap, "registry port, where decode workers find this one; 0 picks a free one")
		fl.IntVar(&f.ControlPort, "control-port", 0, "port of decode workers' sessions; 0 picks a free one")
		fl.IntVar(&f.DataPort, "data-port", 0, "port that KV leaves by; 0 picks a free one")
		fl.StringVar(&f.Advertise, "advertise", "", "host that decode workers are told to reach this one at (default: --host)")
		fl.IntVar(&f.Unpaired, "unpaired", 0, "rooms that may compute before their decode is ready (default 8; -1: none)")
	}
	fl.BoolVar(&f.InsecureBind, "insecure-bind", false, "allow a --host other than loopback; the ports have no authentication")
	fl.StringVar(&f.Engine, "engine", "llama", "llama, or sim: a simulator that needs no model")
	fl.StringVar(&f.llamaLib, "llama-lib", "", "directory of the llama.cpp libraries (default: $"+llamalib.EnvDir+", a cache, or fetched)")
	fl.StringVar(&f.modelDir, "model-dir", "", "where pulled models lie (default: $TANDEM_MODEL_DIR, or a cache)")
	fl.BoolVar(&f.offline, "offline", false, "never fetch a library or a model")
	fl.IntVar(&f.context, "context", worker.DefaultContext, "KV cells: tokens of all requests together, in steps of 256")
	fl.IntVar(&f.slots, "slots", worker.DefaultSlots, "requests in the engine at once")
	fl.IntVar(&f.Llama.Threads, "threads", 0, "compute threads (default: cores - 1, at least 1)")
	fl.StringVar(&f.Llama.KVType, "kv-type", "f16", "type of KV: f16, bf16 or q8_0; the same on all workers")
	fl.IntVar(&f.chunk, "chunk", 256, "tokens of a hand-over chunk; the same on all workers")
	fl.BoolVar(&f.Llama.SWAFull, "swa-full", false, "keep all positions of sliding-window layers")
	fl.IntVar(&f.Llama.GPULayers, "gpu-layers", 0, "layers on the GPU: 0 none, -1 all")
	fl.BoolVar(&f.Deterministic, "deterministic", false, "compute each request alone, with bf16 KV unless --kv-type is given: its text depends on nothing else, at the price of throughput")
	fl.BoolVar(&f.NoPrefixCache, "no-prefix-cache", false, "compute every prompt whole instead of reusing KV of the same beginning")
	if role != worker.Prefill {
		fl.BoolVar(&f.Overcommit, "overcommit", false, "admit more requests than fit at their full length; when cells run out the latest is set aside and goes on later")
		fl.IntVar(&f.AsideBytes, "aside-bytes", worker.DefaultAsideBytes, "memory for requests set aside")
	}
	fl.DurationVar(&f.StepTarget, "step-target", 250*time.Millisecond, "how long one engine call should take at most: a cancel waits about this long")
	fl.IntVar(&f.ArenaBytes, "arena-bytes", 0, "memory for chunks (default: enough for every slot)")
	fl.IntVar(&f.MaxQueue, "max-queue", 0, "requests that may wait for memory; more get 429 (default 16384)")
	fl.DurationVar(&f.DrainTimeout, "drain-timeout", worker.DefaultDrainTimeout, "how long SIGTERM waits for requests to finish")
	fl.DurationVar(&f.Sim.TokenTime, "sim-token-time", 100*time.Microsecond, "sim: time per token")
	fl.DurationVar(&f.Sim.CallTime, "sim-call-time", time.Millisecond, "sim: time per engine call")
	fl.IntVar(&f.Sim.KVBytesPerToken, "sim-kv-bytes", 1024, "sim: bytes of KV per token")
	f.logs.add(fl)
	return cmd
}

func (f *workerFlags) run(cmd *cobra.Command) error {
	var err error
	if f.Log, err = f.logs.logger(); err != nil {
		return err
	}
	if kv := cmd.Flags().Lookup("kv-type"); f.Deterministic && !kv.Changed {
		f.Llama.KVType = "bf16" // see Config.Deterministic
	} else if f.Deterministic && f.Llama.KVType == "f16" && f.Engine == "llama" {
		f.Log.Warn("with f16 KV, texts still depend on which cells are free: on a CPU attention adds in f16, and the order decides; bf16 does not")
	}
	f.Sim.Cells, f.Sim.Slots, f.Sim.Chunk = f.context, f.slots, f.chunk
	f.Sim.Name = f.name
	if f.Engine == "llama" {
		if err := f.findLlama(cmd); err != nil {
			return err
		}
	}
	return worker.Run(cmd.Context(), f.Config)
}

// findLlama resolves the library and the model, fetching what is missing.
func (f *workerFlags) findLlama(cmd *cobra.Command) error {
	lib, err := llamalib.Find(cmd.Context(), llamalib.Options{Dir: f.llamaLib, Progress: os.Stderr, Offline: f.offline})
	if err != nil {
		return err
	}
	path, err := modelstore.Resolve(cmd.Context(), f.model, modelstore.Options{Dir: f.modelDir, Progress: os.Stderr, Offline: f.offline})
	if errors.Is(err, gguf.ErrNotGGUF) || errors.Is(err, gguf.ErrDamaged) {
		return &engine.ConfigError{Err: err}
	}
	if err != nil {
		return err
	}
	f.Llama.LibDir, f.Llama.ModelPath = lib.Dir, path
	f.Llama.Name = f.name
	if f.name == "" && path != f.model {
		f.Llama.Name = f.model
	}
	f.Llama.Context, f.Llama.Slots, f.Llama.Chunk = f.context, f.slots, f.chunk
	f.Llama.Log = f.Log
	return nil
}
