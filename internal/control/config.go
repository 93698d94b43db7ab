package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// The session's clock. Both sides must agree roughly, so they are constants.
const (
	// PingEvery is short enough for six tries before a peer is suspect.
	PingEvery = 500 * time.Millisecond
	// SuspectAfter and FenceAfter are the promise's numbers: suspect within 3 s,
	// fenced by 5 s, so the fence comes one tick earlier than its name.
	SuspectAfter = 3*time.Second - PingEvery
	FenceAfter   = 5*time.Second - PingEvery
	// HelloTimeout from the connection's first byte to its HELLO.
	HelloTimeout = 5 * time.Second
	// WriteTimeout of one frame: a peer that takes none for so long loses its
	// session. It is judged by the pinger, so up to PingEvery later.
	WriteTimeout = 2 * time.Second
	// GoodbyeTimeout is how long a node that stops after a drain waits for its peers
	// to have heard that it goes; a round trip is enough.
	GoodbyeTimeout = 200 * time.Millisecond
	// ReplaceTimeout for the old session's goroutines to end when a new one of
	// the same incarnation takes its place; their connection is closed already.
	ReplaceTimeout = time.Second
)

// The dialler's clock.
const (
	MinRedial    = 50 * time.Millisecond // a restarted peer is back soon
	MaxRedial    = 2 * time.Second       // a peer that returns is found within the suspicion time
	RefusedPause = 5 * time.Second       // a layout that does not fit does not change by asking again
	SteadyAfter  = 5 * time.Second       // a session that lived so long forgets earlier failures
	WarnEvery    = 30 * time.Second      // an address that cannot be reached is told of at once, and then so often
)

// Limits that a peer's bytes run into.
const (
	// GarbageBudget bad frames in GarbageWindow close the session: a few are a
	// fault, a stream of them is not a peer.
	GarbageBudget = 100
	GarbageWindow = 10 * time.Second
	// MaxPending connections may be without a HELLO at one time.
	MaxPending = 64
	// hardMessage is where gRPC itself gives up on the connection; between it
	// and MaxMessage a frame is read, counted and dropped.
	hardMessage = 1 << 20
	// windowBytes of HTTP/2 flow control, per stream and per connection; it is
	// HTTP/2's least, and bounds what a peer can make us buffer.
	windowBytes = 64 << 10
	// maxHeaderList bounds a request's HTTP/2 headers; ours have 300 bytes.
	maxHeaderList = 8 << 10
	// fenceMemory is how long, and maxFenced how many, fenced incarnations are
	// remembered to be told of it and to be shown.
	fenceMemory = 10 * time.Minute
	maxFenced   = 1024
)

// Defaults of Config.
const (
	// DefaultOutbox holds 10,000 aborts with room to spare, the storm that
	// started this project.
	DefaultOutbox = 4 << 20
	// DefaultMaxSessions is far above any fleet's number of decode workers per
	// prefill worker.
	DefaultMaxSessions = 256
)

// Errors of Send.
var (
	// ErrNoPeer: no such incarnation, or it was fenced.
	ErrNoPeer = errors.New("no such peer")
	// ErrOutboxFull: the peer does not take messages as fast as they come.
	ErrOutboxFull = errors.New("outbox full")
	// ErrBadMessage: the message is not one that a peer would accept.
	ErrBadMessage = errors.New("not a valid room message")
)

// Reasons of SessionDown.
var (
	ErrFenced     = errors.New("fenced")
	ErrReplaced   = errors.New("replaced by a new session of the same incarnation")
	ErrReset      = errors.New("reset")
	ErrForgotten  = errors.New("address forgotten")
	ErrGarbage    = errors.New("too many bad frames")
	ErrStalled    = errors.New("the peer takes no bytes")
	ErrRefused    = errors.New("refused by the peer")
	ErrNodeClosed = errors.New("node stopped")
	ErrLeft       = errors.New("it left service in good order")
)

// Config makes a Node.
type Config struct {
	// Self is this process's incarnation. Required.
	Self id.Incarnation
	// Rank and Of place this process in a tensor-parallel worker. Of 0 means 1.
	Rank, Of int

	// Hello returns this worker's own HELLO for that peer; only Layout,
	// Describe, Build and Transports are read. An error refuses the peer: it
	// should be a *room.Cause and its text name both values (CheckLayout). A
	// dialler calls it twice: with nil for the HELLO it opens with, when it does
	// not know who answers, and with the peer that answered, to judge it; the
	// second answer is not sent. An acceptor calls it once, after the peer's
	// earlier session has ended: a ticket issued here is for the new one.
	// Required; must return at once.
	Hello func(peer *Peer) (Peer, error)
	// Handler is told of peers and messages. Required.
	Handler Handler
	// OnPanic is told that the handler panicked on a message of that room, or
	// with room 0 on another call. May be nil.
	OnPanic func(peer id.Incarnation, room id.Room)

	// Log is the logger; nil means slog.Default.
	Log *slog.Logger
	// Outbox bounds each lane of a peer's outbox, in bytes. 0 means DefaultOutbox.
	Outbox int
	// MaxSessions bounds accepted connections. 0 means DefaultMaxSessions.
	MaxSessions int

	// ServerCreds and ClientCreds secure the connections (mTLS); nil means plain.
	ServerCreds, ClientCreds credentials.TransportCredentials
	// DialContext opens a connection; nil means TCP. Tests put a network here.
	DialContext func(ctx context.Context, addr string) (net.Conn, error)
}

func (c Config) withDefaults() Config {
	if c.Of == 0 {
		c.Of = 1
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Outbox == 0 {
		c.Outbox = DefaultOutbox
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = DefaultMaxSessions
	}
	if c.DialContext == nil {
		c.DialContext = func(ctx context.Context, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: HelloTimeout}
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return c
}

// causeOf turns any error into what REFUSE carries.
func causeOf(err error) room.Cause {
	var c *room.Cause
	if errors.As(err, &c) {
		return *c
	}
	return room.Cause{Code: room.Protocol, Detail: err.Error()}
}
