package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/llama"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/prefill"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

// LeaveNotice is how long a worker that leaves service still takes requests: the
// router looks at its health once a second, and what it sends until then is not
// refused.
const LeaveNotice = time.Second

// shutdownGrace is how long connections get to finish writing at the very end.
const shutdownGrace = 2 * time.Second

// Run is a worker process from start to end. It returns nil after a drain that
// ctx's end asked for, and an *engine.ConfigError if cfg can never work.
func Run(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return err
	}
	lis, err := cfg.listen(cfg.Port, "HTTP", "--port")
	if err != nil {
		return err
	}
	// What runs outlives ctx: a drain comes first.
	g := svc.New(context.WithoutCancel(ctx), string(cfg.Role), cfg.Log)
	s := &Server{cfg: cfg, self: id.NewIncarnation(), group: g, started: time.Now(), metrics: newMetrics()}
	s.metrics.server.Store(s)
	srv := api.NewServer(g.Context(), s.Handler(), slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug))
	g.Go("http", func(ctx context.Context, _ *svc.Loop) error {
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // a load that failed waits for this loop
		if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	cfg.Log.Info("listening", "role", cfg.Role, "addr", lis.Addr().String(), "incarnation", s.self)

	type result struct {
		unload func()
		err    error
	}
	loaded := make(chan result, 1)
	g.Task("load", func(context.Context) {
		unload, err := s.load(g)
		loaded <- result{unload, err}
	})
	var r result
	select {
	case r = <-loaded:
	case <-ctx.Done():
		// The library cannot be told to stop loading: it ends with the process.
		g.Stop(nil)
		return nil
	}
	defer func() {
		g.Stop(nil)
		_ = srv.Close() // connections were given their time by drain
		g.Wait()
		r.unload()
	}()
	if r.err != nil {
		return r.err
	}
	cfg.Log.Info("ready", "role", cfg.Role, "url", "http://"+lis.Addr().String(), "model", s.parts.Load().info.Model, "after", time.Since(s.started).Round(time.Millisecond))
	svc.LogLimits(cfg.Log, s.limits())
	<-ctx.Done()
	s.drain(srv)
	return nil
}

// load loads the engine and builds the worker around it. The function returned,
// also with an error, gives back what was loaded; nothing may use it any more.
func (s *Server) load(g *svc.Group) (unload func(), err error) {
	cfg := s.cfg
	var backend engine.Backend
	var selfTest any
	switch cfg.Engine {
	case "sim":
		if backend, err = sim.New(cfg.Sim); err != nil {
			err = &engine.ConfigError{Err: err}
		}
	default:
		cfg.Llama.MustHandOver = cfg.Role != Serve
		var b *llama.Backend
		if b, err = llama.New(cfg.Llama); err == nil {
			backend, selfTest = b, b.SelfTest()
		}
	}
	var no *engine.NoHandOverError
	if errors.As(err, &no) {
		return func() {}, noPair(no.Info)
	}
	if err != nil {
		return func() {}, fmt.Errorf("the engine cannot be loaded: %w", err)
	}
	p := &parts{info: backend.Info(), selfTest: selfTest, tokenizing: make(chan struct{}, runtime.GOMAXPROCS(0))}
	p.longest = longestPiece(backend.Tokenizer(), p.info.Vocab)
	engineCfg := engine.Config{Backend: backend, Deterministic: cfg.Deterministic, StepTarget: cfg.StepTarget, NoPrefixCache: cfg.NoPrefixCache,
		Overcommit: cfg.Overcommit && cfg.Role != Prefill, Log: cfg.Log}
	if engineCfg.Overcommit {
		if engineCfg.Aside, err = kv.NewArena(kv.ArenaConfig{Bytes: cfg.AsideBytes}); err != nil {
			return func() { _ = backend.Close() }, fmt.Errorf("memory for states set aside: %w", err) // the first error tells
		}
	}
	loop := engine.New(engineCfg)
	p.engine = loop
	unload = func() {
		if engineCfg.Aside != nil {
			_ = engineCfg.Aside.Close() // as below
		}
		if p.arena != nil {
			_ = p.arena.Close() // unmapping at exit: nobody reads it any more
		}
		if err := backend.Close(); err != nil {
			cfg.Log.Warn("engine not closed", "err", err)
		}
	}
	if err := s.build(g, p); err != nil {
		return unload, err
	}
	g.Go("engine", func(ctx context.Context, _ *svc.Loop) error { return loop.Run(ctx) })
	s.parts.Store(p)
	return unload, nil
}

// build makes the worker of this role.
func (s *Server) build(g *svc.Group, p *parts) (err error) {
	cfg := s.cfg
	template := p.info.Template
	if template == "" {
		template, p.stop = chat.Fallback, chat.FallbackStop
		cfg.Log.Warn("the model has no chat template, as base models have none: chats are written out as a dialogue", "model", p.info.Model)
	}
	if p.chat, err = chat.New(template, p.info.BOS, p.info.EOS); err != nil {
		return &engine.ConfigError{Err: err}
	}
	p.record = flight.New(string(cfg.Role), 0, s.ended)
	if cfg.Role != Serve && p.info.HandOver != "" {
		return noPair(p.info)
	}
	if cfg.Role != Serve {
		size := cfg.ArenaBytes
		if size == 0 {
			size = p.arenaBytes(cfg.Role)
		}
		if p.arena, err = kv.NewArena(kv.ArenaConfig{Bytes: size}); err != nil {
			return err
		}
		cfg.Log.Info("arena", "bytes", size, "chunk_bytes", p.engine.ChunkBytes(p.info.Chunk), "chunk_tokens", p.info.Chunk)
	}
	switch cfg.Role {
	case Prefill:
		p.prefill = prefill.New(prefill.Config{Engine: p.engine, Arena: p.arena, Recorder: p.record, Log: cfg.Log, MaxQueue: cfg.MaxQueue, Unpaired: cfg.Unpaired})
		return s.linkPrefill(g, p)
	case Decode:
		p.decode = decode.New(decode.Config{Engine: p.engine, Arena: p.arena, Recorder: p.record, Log: cfg.Log, MaxQueue: cfg.MaxQueue})
		return s.linkDecode(g, p)
	default:
		p.decode = decode.New(decode.Config{Engine: p.engine, Recorder: p.record, Log: cfg.Log, MaxQueue: cfg.MaxQueue})
		p.decode.Start(g, nil)
		return nil
	}
}

// noPair refuses a model that a prefill and a decode worker cannot share.
func noPair(i engine.Info) error {
	return engine.Misconfigured("%s (architecture %s) cannot be served by a prefill and a decode worker: %s. Serve it in one process: tandem serve --model %s",
		i.Model, i.Arch, i.HandOver, i.Path)
}

// arenaBytes is enough for every slot's share, and for some rooms that run ahead.
func (p *parts) arenaBytes(role Role) int {
	chunk := p.engine.ChunkBytes(p.info.Chunk) + 4096 // alignment
	if role == Decode {
		return chunk * p.info.Slots * decode.WindowChunks
	}
	return chunk * (p.info.Slots*prefill.ShareChunks + 2*prefill.MaxRoomChunks)
}

// ended writes a request's one terminal line and counts it.
func (s *Server) ended(c *flight.Record) {
	s.metrics.ended(c)
	v := c.View()
	level := slog.LevelInfo
	if c.Cause().Failure() {
		level = slog.LevelWarn
	}
	s.cfg.Log.Log(context.Background(), level, "request ended", "rid", v.RID, "room", v.Room, "outcome", v.Outcome, "code", v.Code, "detail", v.Detail,
		"ms", v.TotalMS, "first_ms", v.FirstMS, "prompt", v.Prompt, "generated", v.Generated)
}

// drain leaves service: no new requests, those that a peer waits for finish,
// within the drain's time.
func (s *Server) drain(srv *http.Server) {
	p := s.parts.Load()
	s.leaving.Store(true)
	s.cfg.Log.Info("draining", "live", p.record.Live(), "timeout", s.cfg.DrainTimeout)
	deadline := time.NewTimer(s.cfg.DrainTimeout)
	defer deadline.Stop()
	s.withdraw(p)
	if s.cfg.Role != Serve { // which no router chooses
		unseen := time.NewTimer(min(LeaveNotice, s.cfg.DrainTimeout/2))
		<-unseen.C
	}
	s.refuse(p)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.record.Live() > 0 {
		select {
		case <-tick.C:
			continue
		case <-deadline.C:
			s.cfg.Log.Warn("drain timed out: the rest is aborted", "live", p.record.Live())
			s.abortAll(p)
		}
		break
	}
	if p.node != nil {
		p.node.Leave() // before the data connections go: a COMMIT may still be queued
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		s.cfg.Log.Debug("connections cut at shutdown", "err", err)
	}
}

func (s *Server) abortAll(p *parts) {
	for _, v := range p.record.List(0) {
		why := room.Because(room.DrainAbort, "the worker left service before the request was finished")
		if p.prefill != nil {
			p.prefill.Abort(v.RID, v.Room, why)
		} else {
			p.decode.Abort(v.RID, v.Room, why)
		}
	}
}
