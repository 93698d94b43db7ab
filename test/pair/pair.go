package pair

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/prefill"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer/tcp"
)

// Wait is how long a test waits for something that must happen.
const Wait = 30 * time.Second

// Prefill is a prefill worker with its ports.
type Prefill struct {
	*prefill.Worker
	Engine  *engine.Loop
	Arena   *kv.Arena
	Source  *tcp.Source
	Node    *control.Node
	Self    id.Incarnation
	Control string // where decode workers dial
	group   *svc.Group
	Backend engine.Backend
}

// Decode is a decode worker.
type Decode struct {
	*decode.Worker
	Engine  *engine.Loop
	Arena   *kv.Arena
	Sink    *tcp.Sink
	Node    *control.Node
	Self    id.Incarnation
	group   *svc.Group
	Backend engine.Backend
}

// Options of a worker. The zero value is fine.
type Options struct {
	Deterministic bool
	ArenaBytes    int
	Unpaired      int
	Limits        room.Limits
	Wrap          func(engine.Engine) engine.Engine // of decode's engine; nil: as it is
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func self(b engine.Backend, me id.Incarnation) control.Peer {
	i := b.Info()
	return control.Peer{Incarnation: me, Of: 1, Layout: i.Layout, Describe: i.Describe, Build: i.Build}
}

func arena(t testing.TB, b engine.Backend, o Options, chunks int) *kv.Arena {
	t.Helper()
	size := o.ArenaBytes
	if size == 0 {
		size = chunks * (b.ChunkBytes(b.Info().Chunk) + 4096)
	}
	a, err := kv.NewArena(kv.ArenaConfig{Bytes: size, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// NewPrefill starts a prefill worker around a backend. The test's end stops it;
// the backend stays the caller's.
func NewPrefill(t testing.TB, b engine.Backend, o Options) *Prefill {
	t.Helper()
	p := &Prefill{Self: id.NewIncarnation(), group: svc.New(context.Background(), "prefill", quiet()), Backend: b}
	p.Engine = engine.New(engine.Config{Backend: b, Deterministic: o.Deterministic, Log: quiet()})
	p.Arena = arena(t, b, o, 2*b.Info().Slots*prefill.ShareChunks)
	p.Worker = prefill.New(prefill.Config{Engine: p.Engine, Arena: p.Arena, Log: quiet(), Unpaired: o.Unpaired, Limits: o.Limits,
		Recorder: flight.New("prefill", 0, nil)})
	var err error
	if p.Source, err = tcp.NewSource(tcp.Config{Self: p.Self, Debug: true, Log: quiet()}, p.Worker); err != nil {
		t.Fatal(err)
	}
	p.Node = control.New(control.Config{Self: p.Self, Handler: p.Worker.Control(), Log: quiet(), OnPanic: p.Worker.Panicked,
		Hello: func(peer *control.Peer) (control.Peer, error) {
			me := self(b, p.Self)
			if peer != nil {
				if err := control.CheckLayout(me, *peer); err != nil {
					return me, err
				}
				me.Transports = []control.Transport{{Name: p.Source.Name(), Addr: p.Source.Addr(), Ticket: p.Source.Issue(peer.Incarnation)}}
			}
			return me, nil
		}})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Control = lis.Addr().String()
	p.Worker.Start(p.group, p.Source, p.Node.Send)
	loop(p.group, "transfer", p.Source.Run)
	loop(p.group, "control", p.Node.Run)
	loop(p.group, "serve", func(ctx context.Context) error { return p.Node.Serve(ctx, lis) })
	loop(p.group, "engine", p.Engine.Run)
	t.Cleanup(func() { p.stop(t) })
	return p
}

func (p *Prefill) stop(t testing.TB) {
	p.group.Stop(nil)
	p.group.Wait()
	if err := p.Arena.Close(); err != nil {
		t.Errorf("prefill's arena: %v", err)
	}
}

// NewDecode starts a decode worker around a backend. lookup says where a prefill
// worker's sessions are, by its bootstrap address; nil makes it serve alone.
func NewDecode(t testing.TB, b engine.Backend, o Options, lookup decode.Lookup) *Decode {
	t.Helper()
	d := &Decode{Self: id.NewIncarnation(), group: svc.New(context.Background(), "decode", quiet()), Backend: b}
	d.Engine = engine.New(engine.Config{Backend: b, Deterministic: o.Deterministic, Log: quiet()})
	d.Arena = arena(t, b, o, b.Info().Slots*decode.WindowChunks)
	var e engine.Engine = d.Engine
	if o.Wrap != nil {
		e = o.Wrap(e)
	}
	d.Worker = decode.New(decode.Config{Engine: e, Arena: d.Arena, Log: quiet(), Limits: o.Limits, Recorder: flight.New("decode", 0, nil)})
	var links *decode.Links
	if lookup != nil {
		var err error
		if d.Sink, err = tcp.NewSink(tcp.Config{Self: d.Self, Debug: true, Log: quiet()}, d.Worker); err != nil {
			t.Fatal(err)
		}
		d.Node = control.New(control.Config{Self: d.Self, Handler: d.Worker.Control(), Log: quiet(), OnPanic: d.Worker.Panicked,
			Hello: func(peer *control.Peer) (control.Peer, error) {
				me := self(b, d.Self)
				if peer != nil {
					return me, control.CheckLayout(me, *peer)
				}
				return me, nil
			}})
		links = &decode.Links{Sink: d.Sink, Sessions: d.Node, Lookup: lookup}
	}
	d.Worker.Start(d.group, links)
	if links != nil {
		loop(d.group, "transfer", d.Sink.Run)
		loop(d.group, "control", d.Node.Run)
	}
	loop(d.group, "engine", d.Engine.Run)
	t.Cleanup(func() { d.stop(t) })
	return d
}

func (d *Decode) stop(t testing.TB) {
	d.group.Stop(nil)
	d.group.Wait()
	if err := d.Arena.Close(); err != nil {
		t.Errorf("decode's arena: %v", err)
	}
}

func loop(g *svc.Group, name string, f func(context.Context) error) {
	g.Go(name, func(ctx context.Context, _ *svc.Loop) error { return f(ctx) })
}

// To returns a Lookup that always answers with one prefill worker.
func To(p *Prefill) decode.Lookup {
	return func(context.Context, string) (string, error) { return p.Control, nil }
}

// Until waits until a condition holds, and fails the test if it never does. It
// polls, because what it watches are gauges.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(Wait)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %v", what, Wait)
		}
	}
}

// Quiet waits until both workers hold nothing: no room, no cell, no arena byte.
func Quiet(t testing.TB, p *Prefill, d *Decode) {
	t.Helper()
	Until(t, "prefill back at its baseline", func() bool { return idle(p.Counts(), p.Engine, p.Arena) })
	Until(t, "decode back at its baseline", func() bool { return idle(d.Counts(), d.Engine, d.Arena) })
	for name, book := range map[string]func() (map[string]uint64, int){"prefill": p.Book, "decode": d.Book} {
		if drops, _ := book(); drops["impossible"] > 0 {
			t.Errorf("%s's book met what cannot be: %v", name, drops)
		}
	}
}

func idle(rooms map[room.State]int, e *engine.Loop, a *kv.Arena) bool {
	for s, n := range rooms {
		if n > 0 && s != room.Parked {
			return false
		}
	}
	held, _ := e.Cells()
	st := a.Stats()
	return held == 0 && st.Leases == 0 && st.Free == st.Total
}

// Collect takes a request's one choice to its end.
func Collect(t testing.TB, g *decode.Generation) ([]engine.Token, *room.Cause, engine.Result) {
	t.Helper()
	c := CollectAll(t, g)[0]
	return c.Tokens, c.Cause, c.Result
}

// Run sends one request through a pair, both legs at once, and returns decode's
// tokens and both endings.
func Run(t testing.TB, p *Prefill, d *Decode, tokens []engine.Token, params engine.Params) (out []engine.Token, dc, pc *room.Cause) {
	t.Helper()
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: params, Due: due})
	if refused != nil {
		t.Fatalf("decode refused: %v", refused)
	}
	out, dc, _ = Collect(t, g)
	if dc.Code != room.Done { // as the router couples the two fates
		p.Abort(rid, rm, dc)
	}
	return out, dc, <-answer
}

// Choice is one choice's whole stream.
type Choice struct {
	Tokens []engine.Token
	Cause  *room.Cause
	Result engine.Result
}

// CollectAll takes all choices of a request to their ends.
func CollectAll(t testing.TB, g *decode.Generation) []Choice {
	t.Helper()
	deadline := time.NewTimer(Wait)
	defer deadline.Stop()
	all := make([]Choice, len(g.Choices()))
	left := len(all)
	for left > 0 {
		select {
		case <-g.Wake():
		case <-deadline.C:
			t.Fatalf("%d choices did not end within %v", left, Wait)
		}
		for i, x := range g.Choices() {
			if all[i].Cause != nil {
				continue
			}
			tokens, ended := x.Take()
			for _, o := range tokens {
				all[i].Tokens = append(all[i].Tokens, o.Token)
			}
			if ended {
				all[i].Cause, all[i].Result = x.Ending()
				left--
			}
		}
	}
	return all
}
