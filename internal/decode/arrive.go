package decode

import (
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

var _ transfer.SinkHandler = (*Worker)(nil)

// Accept lends the transport a buffer of the room's window for the next chunk of
// its hand-over. Anything else is discarded.
func (w *Worker) Accept(peer id.Incarnation, h transfer.Header) *kv.Lease {
	if bad := w.misfit(h); bad != nil {
		w.fail(h.Room, bad)
		return nil
	}
	take := false
	w.keeper.Do(func(b *room.Book, now room.Mono) (fx []room.Effect) {
		take, fx = b.Chunk(now, peer, h.Gen, h.Room, h.Seq, h.P0, h.P1, h.Bytes, h.Last)
		return fx
	})
	if !take {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[h.Room]
	if j == nil || j.stopped || len(j.free) == 0 || len(j.free[len(j.free)-1].Bytes()) < h.Bytes {
		return nil // it has ended meanwhile: the book counts the window
	}
	last := len(j.free) - 1
	lease := j.free[last]
	j.free = j.free[:last]
	j.reading++
	return lease
}

// misfit says why a chunk can be none of this engine's, before its room is asked.
// A foreign room number costs nothing: failing an unknown room is only counted.
func (w *Worker) misfit(h transfer.Header) *room.Cause {
	switch {
	case h.Layout != w.info.Layout:
		return room.Because(room.LayoutMismatch, "chunk %d has layout %v, this worker %v", h.Seq, h.Layout, w.info.Layout)
	case h.P1 == h.P0 && h.Bytes == 0:
		return nil
	case h.P1 <= h.P0 || h.Tokens() > w.info.Chunk || h.Bytes != w.cfg.Engine.ChunkBytes(h.Tokens()):
		return room.Because(room.Protocol, "chunk %d [%d, %d) has %d bytes, which no chunk of this layout has", h.Seq, h.P0, h.P1, h.Bytes)
	}
	return nil
}

// Arrived verifies a chunk and hands it to the engine.
func (w *Worker) Arrived(peer id.Incarnation, h transfer.Header, lease *kv.Lease, err error) {
	w.mu.Lock()
	j := w.jobs[h.Room]
	w.mu.Unlock()
	if j == nil { // cannot be: a job stays while the transport reads for it
		lease.Release()
		return
	}
	if err != nil { // canceled, or LinkDown follows and ends the rooms of this peer
		w.notReading(j, lease)
		return
	}
	payload := lease.Bytes()[:h.Bytes]
	sum := kv.Sum(payload)
	if got := kv.Seal(h.ChunkID, sum); got != h.Sum {
		w.fail(h.Room, room.Because(room.Corrupt, "chunk %d [%d, %d): checksum %016x, announced %016x", h.Seq, h.P0, h.P1, got, h.Sum))
		w.notReading(j, lease)
		w.sink.Ack(peer, h)
		return
	}
	a := arrival{from: peer, h: h, lease: lease, sum: sum}
	if h.Bytes == 0 {
		w.mu.Lock()
		j.reading--
		w.mu.Unlock()
		w.imported(j, a)
		return
	}
	w.mu.Lock()
	j.reading--
	j.importing = append(j.importing, a)
	importErr := j.seq.Import(h.P0, h.P1, payload)
	if importErr != nil {
		j.importing = j.importing[:len(j.importing)-1]
		j.free = append(j.free, lease)
	}
	w.mu.Unlock()
	if importErr != nil {
		w.sink.Ack(peer, h)
		w.fail(h.Room, room.Because(room.Protocol, "chunk %d [%d, %d): %v", h.Seq, h.P0, h.P1, importErr))
		w.finished(j)
	}
}

func (w *Worker) notReading(j *job, lease *kv.Lease) {
	w.mu.Lock()
	j.reading--
	j.free = append(j.free, lease)
	w.mu.Unlock()
	w.finished(j)
}

// LinkDown ends the rooms whose chunks the connection carried, and asks for a
// new session, which brings a new ticket.
func (w *Worker) LinkDown(peer id.Incarnation, err error) {
	w.peers.linkDown(peer)
	w.peerDown(peer, room.Because(room.TransferLost, "the data connection to prefill worker %v broke: %v", peer, err))
	w.sessions.Reset(peer, err)
}

func (w *Worker) peerDown(peer id.Incarnation, cause *room.Cause) {
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.PeerDown(now, peer, cause) })
}
