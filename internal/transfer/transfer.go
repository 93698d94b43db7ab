package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// Header announces one chunk: what it is, how long, and its checksum.
type Header struct {
	kv.ChunkID
	Bytes int    // payload length
	Sum   uint64 // kv.Checksum(ChunkID, payload)
	Last  bool   // completion, in band: no chunk of this hand-over follows
}

// Ticket lets one sink open one data connection: 32 random bytes, bound to both
// incarnations, used once.
type Ticket [32]byte

// Lease is how long a peer that reads nothing may keep memory of a hand-over that was
// canceled: then its link is closed. It is as long as a silent peer is not yet suspect.
const Lease = 3 * time.Second

// Errors that end a published chunk before its acknowledgement.
var (
	ErrCanceled = errors.New("transfer canceled")
	ErrFenced   = errors.New("peer fenced")
	ErrLinkDown = errors.New("data connection lost")
	ErrNoLink   = errors.New("no data connection to this peer")
	ErrFull     = errors.New("too many chunks queued for this peer")
)

// SourceHandler hears what became of published chunks. Calls come from the
// transport's goroutines and must return at once.
type SourceHandler interface {
	// Settled ends one accepted Publish, exactly once: nil means acknowledged
	// (the sink is finished with it), else ErrCanceled, ErrFenced or
	// ErrLinkDown. The source no longer reads the lease's bytes and has
	// released its hold.
	Settled(peer id.Incarnation, h Header, err error)

	// LinkUp and LinkDown tell of the data connection to one peer. Every chunk
	// outstanding on it was settled before LinkDown.
	LinkUp(peer id.Incarnation)
	LinkDown(peer id.Incarnation, err error)
}

// Source publishes chunks to sinks that have connected with a ticket. All
// methods are safe for concurrent use and none of them blocks, but Run.
type Source interface {
	// Name is the transport's name in HELLO, e.g. "tcp".
	Name() string

	// Addr is what HELLO tells the sink to connect to.
	Addr() string

	// Issue returns a new ticket for one connection of that peer. An earlier
	// unused one of the same peer is void.
	Issue(peer id.Incarnation) Ticket

	// Publish queues a chunk. Returns nil: the source holds the lease until it
	// calls Settled. Returns an error (ErrNoLink, ErrFull): the caller keeps it.
	Publish(peer id.Incarnation, h Header, lease *kv.Lease) error

	// Cancel settles the chunks of one hand-over with ErrCanceled, as soon as
	// nobody reads their bytes: at once those that are queued, the others
	// within Lease, at the price of the link if it must be.
	Cancel(peer id.Incarnation, room id.Room, gen id.Generation)

	// Fence closes the peer's connection and settles all its chunks.
	Fence(peer id.Incarnation)

	// Run serves until ctx ends, then fences every peer and returns.
	Run(ctx context.Context) error

	// Stats returns the counters since start.
	Stats() Stats
}

// SinkHandler decides where bytes go. Calls come from the link's one reader and
// must return at once.
type SinkHandler interface {
	// Accept returns a lease of at least h.Bytes for this chunk, whose hold
	// passes to the transport until Arrived, or nil to have the bytes
	// discarded: read, thrown away, acknowledged.
	Accept(peer id.Incarnation, h Header) *kv.Lease

	// Arrived hands an accepted chunk's lease back with its bytes in place,
	// not yet verified. With err not nil the bytes are incomplete.
	Arrived(peer id.Incarnation, h Header, lease *kv.Lease, err error)

	// LinkDown says that the connection ended. It comes once per successful Open.
	LinkDown(peer id.Incarnation, err error)
}

// Sink fetches chunks from sources. All methods are safe for concurrent use.
type Sink interface {
	Name() string

	// Open connects to a source, presents the ticket and starts reading. It
	// returns when the source accepted the ticket, or when ctx ends.
	Open(ctx context.Context, peer id.Incarnation, addr string, t Ticket) error

	// Ack tells the source that the sink is finished with a chunk that Arrived.
	// It never blocks.
	Ack(peer id.Incarnation, h Header)

	// Cancel asks for the lease of a chunk of that hand-over which is being read:
	// Arrived brings it at once, with ErrCanceled, unless it brings it whole. The
	// rest of the chunk is discarded.
	Cancel(peer id.Incarnation, room id.Room, gen id.Generation)

	// Close ends the peer's connection. LinkDown follows.
	Close(peer id.Incarnation)

	// Run lives until ctx ends, then closes every link and returns when all its
	// goroutines have ended.
	Run(ctx context.Context) error

	Stats() Stats
}

// Stats are a transport's counters since start.
type Stats struct {
	Links     int    // open now
	Chunks    uint64 // acknowledged (source) or arrived (sink)
	Bytes     uint64 // payload bytes of those
	Discarded uint64 // chunks read and thrown away (sink)
	Malformed uint64 // connections closed because of bytes that are no frame
	Refused   uint64 // connections refused: bad ticket, late handshake, too many
	Queued    int    // chunks published and not settled (source)
	Held      int64  // bytes published and not settled (source)
}
