package control

import (
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Peer is a worker as its HELLO describes it.
type Peer struct {
	Incarnation id.Incarnation
	Rank, Of    int
	Layout      kv.Fingerprint
	Describe    string // the layout in words
	Build       string // backend and library version
	Transports  []Transport
	Addr        string // the dialled address, or where an accepted session comes from
}

// Transport is one data plane that a prefill worker offers, with the ticket
// that opens one connection of it.
type Transport struct {
	Name, Addr string
	Ticket     transfer.Ticket
}

// CheckLayout refuses a peer that KV cannot be handed over to or from; the
// error names both values. It serves Config.Hello.
func CheckLayout(own, peer Peer) error {
	if own.Layout != peer.Layout {
		return room.Because(room.LayoutMismatch, "this worker has layout %v (%s), the peer has %v (%s)",
			own.Layout, own.Describe, peer.Layout, peer.Describe)
	}
	if own.Rank != peer.Rank || own.Of != peer.Of {
		return room.Because(room.LayoutMismatch, "this worker is rank %d of %d, the peer is rank %d of %d",
			own.Rank, own.Of, peer.Rank, peer.Of)
	}
	return nil
}

// State is what this worker thinks of a peer.
type State uint8

const (
	Alive   State = iota // it talks
	Suspect              // silent for SuspectAfter: no new rooms
	Fenced               // silent for FenceAfter, or gone: nothing of before counts
)

var stateNames = [...]string{"alive", "suspect", "fenced"}

// String returns the state's metric label.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText prints the state in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Handler hears of peers and their messages. Calls about one peer come one at a
// time, from its session's reader or from the pinger, and must return at once.
// A panic is recovered, counted and reported by Config.OnPanic.
type Handler interface {
	// SessionUp says that HELLOs were exchanged and Send works; also after a
	// reconnect of the same incarnation, with new tickets.
	SessionUp(p Peer)
	// Message is one room message of that peer.
	Message(p id.Incarnation, m room.Message)
	// SessionDown says that the connection was lost. It comes once per
	// SessionUp. Messages still queued wait for a reconnect until the fence.
	SessionDown(p id.Incarnation, err error)
	// PeerState says that the peer is suspect, fenced, or alive again. Fenced is
	// the last call about what the two had with each other: a SessionUp of the
	// same incarnation after it starts from nothing, on both sides.
	PeerState(p id.Incarnation, s State)
	// Drain says that the peer takes no new rooms from now on.
	Drain(p id.Incarnation)
}

// Drop counts by reason what was received or queued and not delivered.
type Drop struct {
	Malformed uint64 `json:"malformed"`         // bytes that are no frame
	Foreign   uint64 `json:"foreign_guard"`     // another protocol's guard
	Version   uint64 `json:"version"`           // another version
	Stale     uint64 `json:"stale_incarnation"` // another incarnation's, or of a session that was replaced
	Oversize  uint64 `json:"oversize"`          // longer than MaxMessage
	Panic     uint64 `json:"panic"`             // the handler panicked on it
	Misplaced uint64 `json:"misplaced"`         // a good frame where it has no business, e.g. a second HELLO
	Full      uint64 `json:"outbox_full"`       // refused by Send
	Fence     uint64 `json:"fenced_unsent"`     // still queued when the peer was fenced
}

// Total adds the reasons up.
func (d Drop) Total() uint64 {
	return d.Malformed + d.Foreign + d.Version + d.Stale + d.Oversize + d.Panic + d.Misplaced + d.Full + d.Fence
}

// ByReason returns the counts by their metric labels.
func (d Drop) ByReason() map[string]uint64 {
	return map[string]uint64{
		"malformed": d.Malformed, "foreign_guard": d.Foreign, "version": d.Version, "stale_incarnation": d.Stale, "oversize": d.Oversize,
		"panic": d.Panic, "misplaced": d.Misplaced, "outbox_full": d.Full, "fenced_unsent": d.Fence,
	}
}

// PeerStatus is one peer as /debug/peers and the metrics see it.
type PeerStatus struct {
	Incarnation  id.Incarnation `json:"incarnation"`
	Addr         string         `json:"addr"`
	Build        string         `json:"build"`
	State        State          `json:"state"`
	Since        time.Time      `json:"since"`     // of the state
	Connected    bool           `json:"connected"` // a session is up now
	Draining     bool           `json:"draining"`
	Sessions     uint64         `json:"sessions"` // SessionUps so far
	Silence      time.Duration  `json:"silence_ns"`
	RTT          time.Duration  `json:"rtt_ns"` // of the last PING answered
	OutboxBytes  int            `json:"outbox_bytes"`
	OutboxFrames int            `json:"outbox_frames"`
	Sent         uint64         `json:"sent"`     // room messages handed to the network
	Received     uint64         `json:"received"` // room messages delivered to the handler
	Drops        Drop           `json:"drops"`
}
