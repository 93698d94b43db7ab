package worker

import (
	"context"
	"net"
	"strconv"

	"github.com/tandem-llm/tandem/internal/bootstrap"
	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer/tcp"
)

// own is this worker as its HELLO describes it.
func (s *Server) own(p *parts) control.Peer {
	return control.Peer{Incarnation: s.self, Of: 1, Layout: p.info.Layout, Describe: p.info.Describe, Build: p.info.Build}
}

// hello makes this worker's HELLO for a peer, and refuses one with another layout.
// offer adds the transports with a ticket for that peer.
func (s *Server) hello(p *parts, offer func(peer control.Peer) []control.Transport) func(*control.Peer) (control.Peer, error) {
	return func(peer *control.Peer) (control.Peer, error) {
		own := s.own(p)
		if peer == nil {
			return own, nil
		}
		if err := control.CheckLayout(own, *peer); err != nil {
			return own, err
		}
		if peer.Build != own.Build {
			s.cfg.Log.Info("the peer has another build: tokens may differ in their last bits", "own", own.Build, "peer", peer.Build)
		}
		if offer != nil {
			own.Transports = offer(*peer)
		}
		return own, nil
	}
}

// linkPrefill opens prefill's ports: the registry, the sessions, the KV.
func (s *Server) linkPrefill(g *svc.Group, p *parts) error {
	cfg := s.cfg
	boot, err := cfg.listen(cfg.BootstrapPort, "bootstrap", "--bootstrap-port")
	if err != nil {
		return err
	}
	sessions, err := cfg.listen(cfg.ControlPort, "control", "--control-port")
	if err != nil {
		_ = boot.Close()
		return err
	}
	data, err := cfg.listen(cfg.DataPort, "data", "--data-port")
	if err != nil {
		_, _ = boot.Close(), sessions.Close()
		return err
	}
	advertised := net.JoinHostPort(cfg.Advertise, strconv.Itoa(portOf(data)))
	source, err := tcp.NewSource(tcp.Config{Self: s.self, Listener: data, Log: cfg.Log}, p.prefill)
	if err != nil {
		_, _ = boot.Close(), sessions.Close()
		return err
	}
	node := control.New(control.Config{Self: s.self, Log: cfg.Log, Handler: p.prefill.Control(), OnPanic: p.prefill.Panicked,
		Hello: s.hello(p, func(peer control.Peer) []control.Transport {
			return []control.Transport{{Name: source.Name(), Addr: advertised, Ticket: source.Issue(peer.Incarnation)}}
		})})
	registry := bootstrap.NewRegistry()
	if err := registry.Register(bootstrap.Registration{
		RankIP: cfg.Advertise, RankPort: portOf(sessions), PageSize: p.info.Chunk, KVCacheDtype: cfg.Llama.KVType,
		PrefillHTTPPort: cfg.Port, Incarnation: bootstrap.Hex(s.self), ControlAddr: net.JoinHostPort(cfg.Advertise, strconv.Itoa(portOf(sessions))),
	}); err != nil {
		_, _ = boot.Close(), sessions.Close()
		return err
	}
	p.node, p.transfer, p.transport, p.bootPort = node, source, source.Name(), portOf(boot)
	s.leave = registry.Withdraw
	p.prefill.Start(g, source, node.Send)
	run(g, "transfer", source.Run)
	run(g, "control", node.Run)
	run(g, "control-server", func(ctx context.Context) error { return node.Serve(ctx, sessions) })
	run(g, "bootstrap", func(ctx context.Context) error { return bootstrap.Serve(ctx, boot, registry) })
	cfg.Log.Info("prefill ports", "bootstrap", boot.Addr(), "control", sessions.Addr(), "data", source.Addr(), "advertised", cfg.Advertise)
	return nil
}

// linkDecode makes decode's connections, which it dials itself.
func (s *Server) linkDecode(g *svc.Group, p *parts) error {
	dial := s.cfg.Network.Dial
	sink, err := tcp.NewSink(tcp.Config{Self: s.self, Log: s.cfg.Log, DialContext: dial}, p.decode)
	if err != nil {
		return err
	}
	node := control.New(control.Config{Self: s.self, Log: s.cfg.Log, Handler: p.decode.Control(), OnPanic: p.decode.Panicked, Hello: s.hello(p, nil),
		DialContext: func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }})
	// The timeout is the asker's: a question that hung longer would be joined by the next.
	client := bootstrap.NewClient(bootstrap.ClientConfig{Log: s.cfg.Log, DialContext: dial, Timeout: decode.LookupTimeout})
	p.node, p.transfer, p.transport = node, sink, sink.Name()
	p.decode.Start(g, &decode.Links{Sink: sink, Sessions: node, Lookup: func(ctx context.Context, addr string) (string, error) {
		answer, err := client.Lookup(ctx, addr)
		// It is only asked while there is no session, and then an old answer is of no use.
		client.Drop(addr, answer)
		if err == nil {
			err = refusal(node, answer)
		}
		return answer.ControlAddr, err
	}})
	run(g, "transfer", sink.Run)
	run(g, "control", node.Run)
	run(g, "bootstrap-client", func(ctx context.Context) error {
		<-ctx.Done()
		client.Close()
		return nil
	})
	return nil
}

// refusal returns why there is no session with the prefill worker that a registry
// names, if one of the two refused it. It may be out of date by the pause until the
// next attempt.
func refusal(node *control.Node, a bootstrap.Answer) error {
	for _, d := range node.Dials() {
		if d.Addr == a.ControlAddr && d.Refused != nil {
			return d.Refused
		}
	}
	return nil
}

// run starts something that lives as long as its context.
func run(g *svc.Group, name string, f func(context.Context) error) {
	g.Go(name, func(ctx context.Context, _ *svc.Loop) error { return f(ctx) })
}

// withdraw makes everybody stop sending new work here.
func (s *Server) withdraw(p *parts) {
	if s.leave != nil {
		s.leave()
	}
	if p.node != nil {
		p.node.BroadcastDrain()
	}
}

// refuse ends what nobody waits for, and takes nothing new.
func (s *Server) refuse(p *parts) {
	s.draining.Store(true)
	if p.prefill != nil {
		p.prefill.Drain()
	} else {
		p.decode.Drain()
	}
}
