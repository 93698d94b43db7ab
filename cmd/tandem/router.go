package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router"
	"github.com/tandem-llm/tandem/internal/svc"
)

// Defaults of tandem router.
const (
	defaultRouterPort  = 30000            // SGLang's routers listen there too
	defaultRouterDrain = 30 * time.Second // for what runs when SIGTERM comes
	// routerHardStop is how long handlers have to tell their clients after the
	// drain's end, before their connections are cut.
	routerHardStop = 2 * time.Second
)

// routerFlags are the flags of tandem router.
type routerFlags struct {
	router.Config
	prefills []string
	decodes  []string
	host     string
	port     int
	drain    time.Duration
	logs     logFlags
}

func newRouterCmd() *cobra.Command {
	f := routerFlags{}
	cmd := &cobra.Command{
		Use: "router", Args: cobra.NoArgs,
		Short: "Run the router: it pairs prefill and decode workers behind one API",
		Long: `The router takes OpenAI's chat completions and completions and SGLang's /generate,
picks a prefill and a decode worker for each request, sends both the body with a
fresh room, and relays decode's answer. It needs no model.

When a client leaves, or one worker fails, the other worker is told at once. Before
the first byte a request may be tried once more, on another pair and in a new room.

Give every worker by its HTTP address. A prefill worker's bootstrap port, where
decode finds it, is asked from the worker; append it to fix it: URL,PORT.

Look at it:
  GET /health         200 if a pair is usable; else the reason for each worker
  GET /debug/rooms    live and ended requests: pair, times, who ended it and why
  GET /metrics        Prometheus

SIGTERM stops accepting, lets requests finish for --drain-timeout, aborts the rest
on both workers, and ends. A second signal ends it at once.`,
		Example: `  tandem router --prefill http://10.0.0.1:30001 --decode http://10.0.0.2:30002
  tandem router --prefill http://10.0.0.1:30001,8998 --prefill http://10.0.0.3:30001,8998 \
      --decode http://10.0.0.2:30002 --host 0.0.0.0 --port 8000
  curl http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \
      -d '{"messages":[{"role":"user","content":"Hello"}],"stream":true}'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVar(&f.prefills, "prefill", nil, "prefill worker, URL, or host:port, or either with ,BOOTSTRAP_PORT; repeat for more")
	fl.StringArrayVar(&f.decodes, "decode", nil, "decode worker, URL or host:port; repeat for more")
	fl.StringVar(&f.host, "host", "127.0.0.1", "address to listen on; there is no authentication")
	fl.IntVar(&f.port, "port", defaultRouterPort, "port to listen on; 0 picks a free one")
	fl.DurationVar(&f.DefaultDeadline, "timeout", router.DefaultDeadline, "deadline of a request without an "+router.TimeoutHeader+" header")
	fl.DurationVar(&f.MaxDeadline, "max-timeout", router.DefaultMaxDeadline, "longest deadline that header may ask for")
	fl.IntVar(&f.Attempts, "attempts", router.DefaultAttempts, "pairs to try for one request, the first included")
	fl.IntVar(&f.MaxInFlight, "max-in-flight", router.DefaultMaxInFlight, "requests at once; more get 429")
	fl.Int64Var(&f.MaxBody, "max-body", api.DefaultMaxBody, "largest body of a request, in bytes")
	fl.DurationVar(&f.HealthInterval, "health-interval", router.DefaultHealthInterval, "time between two health checks of a worker")
	fl.DurationVar(&f.drain, "drain-timeout", defaultRouterDrain, "how long SIGTERM waits for requests to finish")
	fl.StringVar(&f.AccessLog, "access-log", "", "file to append a JSON line to for every ended request: times, pairs, outcome and cause; at 64 MiB it becomes FILE.1")
	fl.BoolVar(&f.AnyModel, "any-model", false, "take requests for any model's name, also one that no worker serves")
	f.logs.add(fl)
	return cmd
}

func (f *routerFlags) run(cmd *cobra.Command) error {
	if err := f.workers(); err != nil {
		return err
	}
	var err error
	if f.Log, err = f.logs.logger(); err != nil {
		return err
	}
	r, err := router.New(f.Config)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(f.host, strconv.Itoa(f.port))
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w: choose another --port or --host, or 0 for a free port", address, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "tandem router listens on http://%s\n", ln.Addr())
	f.Log.Info("listening", "role", "router", "addr", ln.Addr().String())
	return serveRouter(cmd.Context(), r, ln, f.drain, f.Log)
}

// workers reads --prefill and --decode.
func (f *routerFlags) workers() error {
	if len(f.prefills) == 0 || len(f.decodes) == 0 {
		return usagef("give at least one --prefill and one --decode, e.g.\n  tandem router --prefill http://127.0.0.1:30001 --decode http://127.0.0.1:30002")
	}
	for _, s := range f.prefills {
		w := router.Worker{URL: withScheme(s)}
		if url, port, ok := strings.Cut(s, ","); ok {
			n, err := strconv.Atoi(port)
			if err != nil || n < 1 || n > 65535 {
				return usagef("--prefill %s: the bootstrap port %q is not in 1 to 65535", s, port)
			}
			w = router.Worker{URL: withScheme(url), BootstrapPort: n}
		}
		f.Prefills = append(f.Prefills, w)
	}
	for _, s := range f.decodes {
		f.Decodes = append(f.Decodes, router.Worker{URL: withScheme(s)})
	}
	return nil
}

// withScheme takes host:port for http://host:port.
func withScheme(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// serveRouter serves on ln until ctx ends; then it drains. The order matters:
// handlers end first, then what sends their aborts.
func serveRouter(ctx context.Context, r *router.Router, ln net.Listener, drain time.Duration, log *slog.Logger) error {
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	srv := api.NewServer(requests, r.Handler(), slog.NewLogLogger(log.Handler(), slog.LevelDebug))

	group := svc.New(context.WithoutCancel(ctx), "tandem router", log)
	served := make(chan error, 1)
	group.Task("http", func(context.Context) { served <- srv.Serve(ln) })
	group.Task("router", func(context.Context) { _ = r.Run(background) })

	var failed error
	select {
	case <-ctx.Done():
		log.Info("draining", "for", drain)
	case failed = <-served:
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := srv.Shutdown(patience); err != nil {
		log.Warn("requests did not finish in time: they are aborted", "after", drain)
		cut(room.Because(room.DrainAbort, "the router is leaving service"))
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), routerHardStop)
		defer cancel()
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	}
	stop()
	group.Wait()
	if failed != nil && !errors.Is(failed, http.ErrServerClosed) {
		return fmt.Errorf("the HTTP server ended: %w", failed)
	}
	return nil
}
