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
		if e.To != 0 {
			w.sink.Cancel(e.To, e.Room, e.Gen)
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
	for _, x := range j.gen.Choices() {
		x.commit()
	}
	if j.gen.produced() {
		w.spread(j)
	}
	if over {
		j.gen.end(&room.Cause{Code: room.Done}, j.result)
		w.spread(j)
		w.finished(j)
	}
}

func (w *Worker) job(rm id.Room) *job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[rm]
}

// stopJob takes a request out of the queue and cancels its sequences. Its streams
// end when the engine says so, or at once if the engine never had it.
func (w *Worker) stopJob(j *job, cause *room.Cause) {
	w.mu.Lock()
	var seqs []*engine.Seq
	for _, x := range j.choices() {
		x.leave()
		x.stopped = true
		if x.seq != nil {
			seqs = append(seqs, x.seq)
		}
	}
	w.mu.Unlock()
	for _, s := range seqs {
		s.Cancel(cause)
	}
	w.finished(j)
}

// stopChoice ends one choice whose text is complete. The others go on.
func (w *Worker) stopChoice(x *job) {
	w.mu.Lock()
	seq := x.seq
	w.mu.Unlock()
	if seq != nil { // it has shown text, so it has one
		seq.Cancel(&room.Cause{Code: room.Done})
	}
}

// spread puts the other choices in line once the first one has a token that may
// be seen: the prompt's KV is complete then, and they start from it.
func (w *Worker) spread(j *job) {
	w.mu.Lock()
	if len(j.others) == 0 || !j.committed || j.spread || j.stopped {
		w.mu.Unlock()
		return
	}
	j.spread = true
	for _, x := range j.others {
		w.queue.push(x)
	}
	w.mu.Unlock()
	w.wakeAdmission()
}

// finished looks whether all choices of a request have ended and nothing uses
// their memory; then it goes back. A room's book is told.
func (w *Worker) finished(j *job) {
	j = j.top()
	w.mu.Lock()
	if w.jobs[j.Room] != j && w.locals[j.RID] != j {
		w.mu.Unlock()
		return // done already
	}
	for _, x := range j.choices() {
		if x.busy() || x.gen.Cause() == nil {
			w.mu.Unlock()
			return
		}
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
