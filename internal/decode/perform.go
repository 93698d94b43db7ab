package decode

import (
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// perform carries out one effect of the book.
func (w *Worker) perform(e room.Effect) {
	switch e := e.(type) {
	case room.Moved:
		if j := w.job(e.Room); j != nil {
			note := ""
			if e.Cause != nil {
				note = e.Cause.Error()
			}
			j.record.Note(e.To.String(), e.On, note)
			if e.Peer != 0 {
				j.record.Peer(e.Peer)
			}
		}
	case room.Send:
		if err := w.sessions.Send(e.To, e.Msg); err != nil {
			w.log.Debug("message not sent", "type", e.Msg.Type, "room", e.Msg.Room, "to", e.To, "err", err)
		}
	case room.Enqueue:
		w.mu.Lock()
		if j := w.jobs[e.Room]; j != nil && !j.stopped {
			w.queue.push(j)
		}
		w.mu.Unlock()
		w.wakeAdmission()
	case room.Seek:
		if j := w.job(e.Room); j != nil {
			w.peers.seek(j.bootstrap, e.Room)
		}
	case room.StopWork:
		if j := w.job(e.Room); j != nil {
			w.stopJob(j, e.Cause)
		}
	case room.Answer:
		if j := w.job(e.Room); j != nil {
			j.gen.end(e.Cause, engine.Result{})
			w.finished(j)
		}
	case room.Proceed:
		if j := w.job(e.Room); j != nil {
			w.proceed(j)
		}
	case room.Drop:
		w.log.Debug("dropped", "room", e.Room, "reason", e.Reason)
	}
}

// proceed opens the stream: no token was seen before the KV it rests on was
// verified and committed.
func (w *Worker) proceed(j *job) {
	w.mu.Lock()
	j.committed = true
	over := j.seqDone && (j.result.Finish == engine.FinishStop || j.result.Finish == engine.FinishLength)
	w.mu.Unlock()
	j.gen.commit()
	if over {
		j.gen.end(&room.Cause{Code: room.Done}, j.result)
		w.finished(j)
	}
}

func (w *Worker) job(rm id.Room) *job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[rm]
}

// stopJob takes a request out of the queue and cancels its sequence. Its stream
// ends when the engine says so, or at once if the engine never had it.
func (w *Worker) stopJob(j *job, cause *room.Cause) {
	w.mu.Lock()
	j.leave()
	j.stopped = true
	seq := j.seq
	w.mu.Unlock()
	if seq != nil {
		seq.Cancel(cause)
	}
	w.finished(j)
}

// finished looks whether a request has ended and nothing uses its memory; then
// the memory goes back. A room's book is told.
func (w *Worker) finished(j *job) {
	w.mu.Lock()
	if w.jobs[j.Room] != j && w.locals[j.RID] != j {
		w.mu.Unlock()
		return // done already
	}
	ended := j.stopped || j.seqDone
	busy := j.seq != nil && !j.seqDone || j.reading > 0 || len(j.importing) > 0
	if !ended || busy || j.gen.Cause() == nil {
		w.mu.Unlock()
		return
	}
	j.releaseFree()
	if j.Room != 0 {
		delete(w.jobs, j.Room)
	} else {
		delete(w.locals, j.RID)
	}
	w.mu.Unlock()
	if j.Room != 0 {
		w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Freed(now, j.Room) })
	}
	w.wakeAdmission()
}

// wants says whether a room still has a request that goes on.
func (w *Worker) wants(rm id.Room) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[rm]
	return j != nil && !j.stopped
}
