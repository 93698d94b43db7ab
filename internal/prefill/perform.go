package prefill

import (
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// perform carries out one effect of the book.
func (w *Worker) perform(e room.Effect) {
	switch e := e.(type) {
	case room.Moved:
		w.moved(e)
	case room.Send:
		if err := w.send(e.To, e.Msg); err != nil {
			w.log.Debug("message not sent", "type", e.Msg.Type, "room", e.Msg.Room, "to", e.To, "err", err)
		}
	case room.Enqueue:
		w.enqueue(e)
	case room.Evict:
		w.evict(e)
	case room.Publish:
		w.publish(e)
	case room.Discard:
		w.discard(e)
	case room.StopWork:
		w.stop(e)
	case room.Answer:
		w.answer(e)
	case room.Drop:
		w.log.Debug("dropped", "room", e.Room, "reason", e.Reason)
	}
}

func (w *Worker) moved(e room.Moved) {
	w.mu.Lock()
	j := w.jobs[e.Room]
	var resume *engine.Seq
	if j != nil && j.run != nil && e.To == room.Transferring {
		if j.run.early {
			w.paid(j.run)
		}
		if j.run.paused { // what lies beyond the share is open to it now
			j.run.paused = false
			resume = j.run.seq
		}
	}
	w.mu.Unlock()
	if j == nil {
		return
	}
	if resume != nil {
		resume.Resume()
	}
	note := ""
	if e.Cause != nil {
		note = e.Cause.Error()
	}
	j.record.Note(e.To.String(), e.On, note)
	if e.Peer != 0 {
		j.record.Peer(e.Peer)
	}
}

func (w *Worker) enqueue(e room.Enqueue) {
	w.mu.Lock()
	if j := w.jobs[e.Room]; j != nil && !j.stopped {
		j.leave()
		switch {
		case j.run != nil:
			j.pairing = e.Paired // an evicted run winds down first
		case e.Paired:
			w.paired.push(j)
		default:
			w.unpaired.push(j)
		}
	}
	w.mu.Unlock()
	w.wakeAdmission()
}

// evict takes an unpaired room's resources back; READY puts it in line again.
func (w *Worker) evict(e room.Evict) {
	w.mu.Lock()
	j := w.jobs[e.Room]
	if j == nil || j.run == nil {
		w.mu.Unlock()
		return
	}
	j.run.evicted = true
	seq := j.run.seq
	w.mu.Unlock()
	seq.Cancel(room.Because(room.UnpairedTimeout, "evicted: READY has not come"))
	w.freed(j) // the engine may be finished with a short prompt long since: no Done follows
}

func (w *Worker) publish(e room.Publish) {
	w.mu.Lock()
	j := w.jobs[e.Room]
	if j == nil || j.run == nil || e.Index >= len(j.run.chunks) {
		w.mu.Unlock()
		w.log.Error("a chunk to publish is not there", "room", e.Room, "index", e.Index)
		w.fail(e.Room, room.Because(room.Bug, "chunk %d is not there to be published", e.Index))
		return
	}
	r := j.run
	c := r.chunks[e.Index]
	h := transfer.Header{
		ChunkID: kv.ChunkID{Room: e.Room, Gen: e.Gen, Seq: e.Seq, P0: c.p0, P1: c.p1, Layout: w.info.Layout},
		Bytes:   c.bytes, Last: c.last,
	}
	h.Sum = kv.Seal(h.ChunkID, c.sum)
	r.inAir++
	c.lease.Retain()
	w.mu.Unlock()
	if err := w.source.Publish(e.To, h, c.lease); err != nil {
		c.lease.Release()
		w.Settled(e.To, h, err)
	}
}

// discard gives the memory of a chunk that need not travel back to the share.
func (w *Worker) discard(e room.Discard) {
	w.mu.Lock()
	j := w.jobs[e.Room]
	if j == nil || j.run == nil || e.Index >= len(j.run.chunks) {
		w.mu.Unlock()
		return
	}
	resume := j.run.take(e.Index)
	w.mu.Unlock()
	if resume != nil {
		resume.Resume()
	}
}

func (w *Worker) stop(e room.StopWork) {
	w.mu.Lock()
	j := w.jobs[e.Room]
	if j == nil {
		w.mu.Unlock()
		return
	}
	j.stopped = true
	j.leave()
	var seq *engine.Seq
	if j.run != nil {
		seq = j.run.seq
	}
	w.mu.Unlock()
	if seq != nil {
		seq.Cancel(e.Cause)
	}
	if e.To != 0 {
		w.source.Cancel(e.To, e.Room, e.Gen)
	}
	w.freed(j)
}

func (w *Worker) answer(e room.Answer) {
	w.mu.Lock()
	j := w.jobs[e.Room]
	if j != nil {
		j.answered = true
	}
	w.mu.Unlock()
	if j != nil {
		j.record.Finalize(e.Cause)
		j.answer <- e.Cause
		w.freed(j)
	}
}

// freed looks whether a run has ended with nothing in the air: then its memory
// goes back, and either the room is free, once its leg has its answer, or its next
// run may begin.
func (w *Worker) freed(j *job) {
	w.mu.Lock()
	if r := j.run; r != nil {
		if !r.ended || r.inAir > 0 || !(j.stopped || r.evicted) {
			w.mu.Unlock()
			return
		}
		r.releaseAll()
		w.paid(r)
		j.run = nil
	}
	done := j.stopped && j.answered
	if w.jobs[j.Room] != j {
		done = false // told already
	} else if done {
		delete(w.jobs, j.Room)
	} else if j.pairing && !j.stopped {
		j.pairing = false
		w.paired.push(j)
	}
	w.mu.Unlock()
	if done {
		w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Freed(now, j.Room) })
	}
	w.wakeAdmission()
}
