package prefill

import (
	"errors"

	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// sessions is what the worker hears of decode workers' sessions. Their going
// changes nothing before the fence.
type sessions struct{ w *Worker }

// Control returns the worker's ear for control.Config.Handler.
func (w *Worker) Control() control.Handler { return sessions{w} }

func (sessions) SessionDown(id.Incarnation, error) {}
func (sessions) Drain(id.Incarnation)              {}

// SessionUp repeats the endings that may have been lost with an earlier session.
func (s sessions) SessionUp(p control.Peer) {
	var rooms []id.Room
	s.w.keeper.Look(func(b *room.Book) { rooms = b.BoundTo(p.Incarnation) })
	for _, rm := range rooms {
		s.w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.PeerUp(now, rm, p.Incarnation, 0) })
	}
}

// Message takes one room message.
func (s sessions) Message(p id.Incarnation, m room.Message) {
	s.w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect {
		fx := b.Message(now, p, m)
		if m.Type == room.Ready {
			s.w.spared(b, m.Room)
		}
		return fx
	})
}

// spared tells a paired room's engine sequence what decode has of the prompt: that
// need not be exported. Called under the keeper's lock.
func (w *Worker) spared(b *room.Book, rm id.Room) {
	r := b.Get(rm)
	if r == nil || r.State != room.WaitingForInput && r.State != room.Transferring {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[rm]
	if j == nil || j.have == r.Have {
		return
	}
	j.have = r.Have
	if j.run != nil {
		j.run.seq.Spare(r.Have)
	}
}

// PeerState ends a fenced decode's rooms.
func (s sessions) PeerState(p id.Incarnation, state control.State) {
	if state != control.Fenced {
		return
	}
	// First, or the rooms would end by their data connection's loss.
	s.w.peerDown(p, room.Because(room.PeerGone, "the decode worker %v is gone", p))
	s.w.source.Fence(p)
}

func (w *Worker) peerDown(p id.Incarnation, cause *room.Cause) {
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.PeerDown(now, p, cause) })
}

// Panicked fails the room whose message made a handler panic.
func (w *Worker) Panicked(_ id.Incarnation, rm id.Room) {
	if rm != 0 {
		w.fail(rm, room.Because(room.Bug, "a message of this room made its handler panic"))
	}
}

// LinkUp of transfer.SourceHandler: READY only comes after it.
func (w *Worker) LinkUp(id.Incarnation) {}

// LinkDown ends the rooms whose chunks the connection carried.
func (w *Worker) LinkDown(p id.Incarnation, err error) {
	w.peerDown(p, room.Because(room.TransferLost, "the data connection to decode worker %v broke: %v", p, err))
}

// Settled takes a published chunk's lease back.
func (w *Worker) Settled(_ id.Incarnation, h transfer.Header, err error) {
	w.mu.Lock()
	j := w.jobs[h.Room]
	if j == nil || j.run == nil {
		w.mu.Unlock()
		return
	}
	r := j.run
	r.inAir--
	resume := r.take(int(h.P0) / w.info.Chunk)
	w.mu.Unlock()
	if resume != nil {
		resume.Resume()
	}
	var cause *room.Cause
	if err != nil && !errors.Is(err, transfer.ErrCanceled) {
		cause = room.Because(room.TransferLost, "chunk %d: %v", h.Seq, err)
	}
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect {
		return b.Settled(now, h.Room, h.Gen, h.Bytes, cause)
	})
	w.freed(j)
}
