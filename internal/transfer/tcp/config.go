package tcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// Name is the transport's name in HELLO.
const Name = "tcp"

// Defaults of Config.
const (
	// DefaultWindow keeps a 10 Gbit/s link busy over 6 ms of round trip.
	DefaultWindow = 8 << 20
	// DefaultMaxQueued chunks per peer: four rooms' worth of a long prompt.
	DefaultMaxQueued = 256
	// DefaultStallTimeout is twice the fence, so that a peer that is only frozen
	// is judged by the control plane first.
	DefaultStallTimeout = 10 * time.Second
	// DefaultHandshakeTimeout from the connection to its accepted ticket.
	DefaultHandshakeTimeout = 5 * time.Second
)

// Limits that a peer's bytes run into.
const (
	// maxPending connections may be without an accepted ticket at one time.
	maxPending = 64
	// maxTickets unused at one time; the oldest is void beyond it.
	maxTickets = 1024
	// maxHeld chunks may be with the sink's handler, or acknowledged but not yet
	// told to the source, on one link: a source that sends more does not read.
	maxHeld = 1 << 16
	// pieceBytes is how much payload is read under one deadline and credited at
	// once: the largest piece that keeps the credit flowing within a chunk.
	pieceBytes = 1 << 20
	// scratchBytes is what a discarded payload is read into.
	scratchBytes = 64 << 10
	// replaceTimeout for an earlier link's goroutines to end when a new one takes
	// its place; its connection is closed already.
	replaceTimeout = 2 * time.Second
)

// Errors of Publish and Open beside those of package transfer.
var (
	ErrRefused   = errors.New("the source refused the ticket")
	ErrDuplicate = errors.New("a chunk of this room, generation and seq is published already")
	ErrHeader    = errors.New("not a valid chunk")
	ErrStopped   = errors.New("transport stopped")
	errStalled   = errors.New("the peer takes no bytes")
	errReplaced  = errors.New("replaced by a new connection of the same peer")
	errClosed    = errors.New("closed")
)

// Config makes a Source or a Sink.
type Config struct {
	// Self is this process's incarnation. Required.
	Self id.Incarnation
	// Listen is where a Source listens; "" means "127.0.0.1:0".
	Listen string
	// Listener is what a Source accepts from, instead of one that it makes at
	// Listen; NewSource owns it, also when it fails. Tests put a network here.
	Listener net.Listener
	// DialContext opens a Sink's connections; nil means TCP.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Advertise is what Addr returns; "" means the listener's own address.
	Advertise string
	// Window is how many payload bytes a Sink lets be in flight on one link. A
	// longer chunk travels alone. 0 means DefaultWindow.
	Window int64
	// MaxQueued bounds the chunks of one peer that are published and not settled.
	// 0 means DefaultMaxQueued.
	MaxQueued int
	// StallTimeout: a peer that takes, or within a chunk sends, no byte for so
	// long loses its link. 0 means DefaultStallTimeout.
	StallTimeout time.Duration
	// HandshakeTimeout bounds a connection's opening. 0 means
	// DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration
	// Debug panics when an invariant of the credit is broken. For tests.
	Debug bool
	// Log is the logger; nil means slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.DialContext == nil {
		c.DialContext = (&net.Dialer{}).DialContext
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.MaxQueued == 0 {
		c.MaxQueued = DefaultMaxQueued
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}
