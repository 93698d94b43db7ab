package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tandem-llm/tandem/internal/control"
)

const (
	sessionMethod = "/tandem.control.v1.Control/Session"
	// dialTimeout of a connection to prefill: it is on this machine or not there.
	dialTimeout = 2 * time.Second
	// maxControl is above what either worker takes, so that they judge.
	maxControl = 4 << 20
)

// codec hands gRPC bytes as they are, as the workers' own does.
type codec struct{}

// Name is the workers' content-subtype.
func (codec) Name() string { return "tandem" }

// Marshal takes a frame.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("fault codec: cannot marshal %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal copies, because gRPC reuses its buffers.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("fault codec: cannot unmarshal into %T", v)
	}
	*b = data.Materialize()
	return nil
}

// controlListener remembers connections by their peer's address, so that a session
// finds its own.
type controlListener struct {
	net.Listener
	p *Proxy
}

// Accept wraps the next connection.
func (l *controlListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &conn{Conn: c}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.conns[c.RemoteAddr().String()] = w
	return w, nil
}

func (p *Proxy) controlServer() *grpc.Server {
	srv := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(maxControl), grpc.WaitForHandlers(true))
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "tandem.control.v1.Control",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Session", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, st grpc.ServerStream) error { return p.session(st) }}},
	}, p)
	return srv
}

// session is one control connection of decode's, and its own one to prefill.
func (p *Proxy) session(decode grpc.ServerStream) error {
	from, ok := peer.FromContext(decode.Context())
	if !ok {
		return status.Error(codes.Internal, "no peer")
	}
	p.mu.Lock()
	near := p.conns[from.Addr.String()]
	delete(p.conns, from.Addr.String())
	p.mu.Unlock()
	if near == nil {
		return status.Error(codes.Internal, "a second stream on one connection")
	}
	defer near.Close()
	ctx, cancel := context.WithCancel(decode.Context())
	defer cancel()
	var far *conn
	cc, err := grpc.NewClient("passthrough:///"+p.target.Control, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if far != nil {
				return nil, errors.New("one connection for one session")
			}
			c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			far = &conn{Conn: c}
			return far, nil
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxControl)))
	if err != nil {
		return err
	}
	defer cc.Close()
	prefill, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, sessionMethod)
	if err != nil {
		return err
	}
	l := p.join(Control, &end{far, func(b []byte) error { return prefill.SendMsg(b) }}, &end{near, func(b []byte) error { return decode.SendMsg(b) }})
	if l == nil {
		return status.Error(codes.Unavailable, "the proxy is closing")
	}
	l.run(func(d Dir) (Frame, error) {
		var b []byte
		if d == ToPrefill {
			err := decode.RecvMsg(&b)
			return controlFrame(d, b), err
		}
		err := prefill.RecvMsg(&b)
		return controlFrame(d, p.announce(b)), err
	})
	return status.Error(codes.Unavailable, "the other side's connection is over")
}

// announce puts the proxy's own data address into prefill's HELLO.
func (p *Proxy) announce(b []byte) []byte {
	f, err := control.Decode(b)
	if err != nil || f.Type != control.Hello {
		return b
	}
	for i := range f.Peer.Transports {
		f.Peer.Transports[i].Addr = p.addr(Data)
	}
	return control.Encode(f)
}

func controlFrame(d Dir, b []byte) Frame {
	f := Frame{Point: Point{Control, d, "GARBAGE"}, Size: len(b), bytes: b}
	if c, err := control.Decode(b); err == nil {
		f.Type, f.Room = c.Type.String(), c.Message.Room
	}
	return f
}
