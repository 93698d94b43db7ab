package router

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/svc"
)

// Router is one router process's state.
type Router struct {
	cfg     Config
	log     *slog.Logger
	group   *svc.Group
	pool    pool
	book    *book
	access  *accessLog // nil without one
	metrics *metrics
	handler http.Handler
	started time.Time
}

// New checks cfg and prepares a router. Nothing runs until Run; until its first
// health checks are answered no pair is usable.
func New(cfg Config) (*Router, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	// The router's own work outlives the requests' contexts and ends with Run.
	r := &Router{cfg: cfg, log: cfg.Log, started: time.Now(), group: svc.New(context.Background(), "router", cfg.Log)}
	for i, w := range cfg.Prefills {
		r.pool.prefills = append(r.pool.prefills, newWorker(r.group.Context(), prefill, i, w, cfg.Dial))
	}
	for i, w := range cfg.Decodes {
		r.pool.decodes = append(r.pool.decodes, newWorker(r.group.Context(), decode, i, w, cfg.Dial))
	}
	r.book = newBook(cfg.Records, func(rec Record) {
		r.metrics.ended(rec)
		r.logEnd(rec)
		if r.access != nil {
			r.access.add(rec)
		}
	})
	r.metrics = newMetrics(&r.pool, func() int {
		r.book.mu.Lock()
		defer r.book.mu.Unlock()
		return len(r.book.live)
	})
	for _, w := range r.pool.all() {
		w.aborts = newAborter(w.url, cfg.Connector, cfg.Dial, func(n int, result string) {
			r.metrics.aborts.WithLabelValues(string(w.role), w.url, result).Add(float64(n))
		})
		w.aborts.refused = func(err error) { r.unreachable(w, err) }
		r.group.Queue("aborts "+w.url, w.aborts.state)
	}
	r.handler = r.routes()
	if cfg.AccessLog != "" {
		var err error
		if r.access, err = newAccessLog(cfg.AccessLog, cfg.AccessLogBytes, cfg.Log); err != nil {
			return nil, err
		}
		r.metrics.accessLog(r.access)
	}
	return r, nil
}

// Handler serves every route of the router. Serve it with api.NewServer, whose
// limits it relies on.
func (r *Router) Handler() http.Handler { return r.handler }

// Run watches the workers and sends aborts until ctx ends. Before ending it, end
// the handlers: they hand their last aborts to Run.
func (r *Router) Run(ctx context.Context) error {
	svc.LogLimits(r.cfg.Log, r.cfg.limits())
	for _, w := range r.pool.all() {
		r.group.Go("health "+w.url, func(ctx context.Context, l *svc.Loop) error { return r.watch(ctx, w, l) })
		r.group.Go("aborts "+w.url, w.aborts.run)
	}
	if r.access != nil {
		r.group.Go("access log", r.access.run)
	}
	<-ctx.Done()
	r.group.Stop(context.Cause(ctx))
	r.group.Wait()
	for _, w := range r.pool.all() {
		w.legs.CloseIdleConnections()
	}
	return nil
}

// unreachable takes a worker that refused a connection out of rotation, until its
// next good health check.
func (r *Router) unreachable(w *worker, err error) {
	if r.pool.unreachable(w, err) {
		r.log.Warn("worker out of rotation", "worker", w.name, "url", w.url, "err", err)
	}
}

// logEnd says how a request ended: failures loudly, the rest for who asks.
func (r *Router) logEnd(rec Record) {
	level := slog.LevelDebug
	switch rec.Outcome {
	case "timeout", "peer_lost", "internal":
		level = slog.LevelWarn
	}
	if !r.log.Enabled(context.Background(), level) {
		return
	}
	attrs := []any{"rid", rec.RID, "outcome", rec.Outcome, "code", rec.Code, "who", rec.Who, "took_s", rec.Took, "detail", rec.Detail}
	for _, a := range rec.Attempts {
		attrs = append(attrs, slog.Group("attempt", "room", a.Room, "prefill", a.Prefill, "decode", a.Decode, "code", a.Code, "detail", a.Detail))
	}
	r.log.Log(context.Background(), level, "request ended", attrs...)
}

// inference registers the inference routes.
func (r *Router) inference(mux *api.Mux) {
	for _, kind := range api.Kinds() {
		mux.HandleFunc("POST "+kind.Path(), func(w http.ResponseWriter, q *http.Request) { r.serve(w, q, kind) })
	}
}
