package control

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// sessionMethod is the one method; its stream carries the frames of wire.go.
const sessionMethod = "/tandem.control.v1.Control/Session"

var serviceDesc = grpc.ServiceDesc{
	ServiceName: "tandem.control.v1.Control",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "Session",
		ServerStreams: true,
		ClientStreams: true,
		Handler:       func(srv any, st grpc.ServerStream) error { return srv.(*Node).accept(st) },
	}},
}

// Serve accepts sessions from lis until ctx or Run ends, and closes lis.
func (n *Node) Serve(ctx context.Context, lis net.Listener) error {
	creds := n.cfg.ServerCreds
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	srv := grpc.NewServer(
		grpc.Creds(connCreds{creds}),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(hardMessage),
		grpc.MaxConcurrentStreams(1), // a connection is one session
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.ConnectionTimeout(HelloTimeout),
		grpc.WaitForHandlers(true),
	)
	srv.RegisterService(&serviceDesc, n)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.g.Context(), cancel)()
	stop := context.AfterFunc(ctx, func() {
		n.Leave() // Run says it too; whoever is first must not be cut off by the other
		srv.Stop()
	})
	err := srv.Serve(&gate{Listener: lis, n: n})
	if !stop() {
		return nil // Serve has waited for Stop
	}
	srv.Stop()
	return err
}

// accept is one session on gRPC's own goroutine.
func (n *Node) accept(st grpc.ServerStream) error {
	from, ok := peer.FromContext(st.Context())
	if !ok {
		return status.Error(codes.Internal, "no peer")
	}
	info, ok := from.AuthInfo.(connInfo)
	if !ok {
		return status.Error(codes.Internal, "no connection")
	}
	s := newSession(n, from.Addr.String(), nil)
	s.own(info.conn)
	s.stream = st
	n.mu.Lock()
	stopped := n.stopped
	n.mu.Unlock()
	if stopped {
		return status.Error(codes.Unavailable, ErrNodeClosed.Error())
	}
	if err := s.run(); err != nil && s.peer == nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return nil
}

// gate bounds connections, and among them those that have not yet said HELLO.
type gate struct {
	net.Listener
	n *Node

	mu            sync.Mutex
	open, pending int
}

// Accept returns the next connection that is within the limits; others are
// closed at once, which a dialler takes as a reason to come back later.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if gc := g.admit(c); gc != nil {
			return gc, nil
		}
		c.Close()
		g.n.cfg.Log.Warn("control connection refused: too many", "from", c.RemoteAddr())
	}
}

func (g *gate) admit(c net.Conn) *gateConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= g.n.cfg.MaxSessions || g.pending >= MaxPending {
		return nil
	}
	g.open++
	g.pending++
	gc := &gateConn{Conn: c, g: g, pending: true}
	gc.timer = time.AfterFunc(HelloTimeout, func() { gc.Close() })
	return gc
}

// gateConn closes itself unless a session is up in time.
type gateConn struct {
	net.Conn
	g       *gate
	timer   *time.Timer
	pending bool // under gate.mu
	closed  bool // under gate.mu
}

// up says that the session is up: the connection may live.
func (c *gateConn) up() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	c.timer.Stop() // set under the lock that this waits for, also if it fires at once
	if c.pending {
		c.pending = false
		c.g.pending--
	}
}

// Close closes the connection and gives its place back, once.
func (c *gateConn) Close() error {
	c.up()
	c.g.mu.Lock()
	if !c.closed {
		c.closed = true
		c.g.open--
	}
	c.g.mu.Unlock()
	return c.Conn.Close()
}

// connCreds passes the connection itself along, so that a session can cut it:
// gRPC has no other way to end a stream whose peer does not read.
type connCreds struct {
	credentials.TransportCredentials
}

type connInfo struct {
	credentials.AuthInfo
	conn net.Conn
}

func (c connCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return conn, connInfo{AuthInfo: info, conn: raw}, err
}

func (c connCreds) Clone() credentials.TransportCredentials {
	return connCreds{c.TransportCredentials.Clone()}
}
