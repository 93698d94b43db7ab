package decode

import (
	"container/list"
	"context"
	"errors"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

// recheck is how long the admission loop sleeps at most while requests wait:
// arena space that comes back is not signalled.
const recheck = 50 * time.Millisecond

// fifo is a queue of jobs from which any one can be taken out.
type fifo struct{ list list.List }

func (q *fifo) len() int { return q.list.Len() }

func (q *fifo) push(j *job) { j.place, j.queue = q.list.PushBack(j), q }

func (q *fifo) front() *job {
	if e := q.list.Front(); e != nil {
		return e.Value.(*job)
	}
	return nil
}

// leave takes a job out of the queue it stands in, if any.
func (j *job) leave() {
	if j.queue != nil {
		j.queue.list.Remove(j.place)
		j.queue, j.place = nil, nil
	}
}

func (w *Worker) wakeAdmission() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// admitLoop gives KV cells and import buffers in the order of arrival. The first
// in line that does not fit holds the others back, so that none starves.
func (w *Worker) admitLoop(ctx context.Context, l *svc.Loop) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for w.admitNext() {
			l.Progress()
		}
		l.Beat()
		wait := time.Second
		w.mu.Lock()
		if w.queue.len() > 0 {
			wait = recheck
		}
		w.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-w.poke:
		case <-w.cfg.Engine.Freed():
		case <-timer.C:
		}
	}
}

// admitNext admits the first in line, if it fits. It says whether to go on.
func (w *Worker) admitNext() bool {
	w.mu.Lock()
	j := w.queue.front()
	if j == nil {
		w.mu.Unlock()
		return false
	}
	if j.Room != 0 && !w.takeBuffer(j) {
		w.mu.Unlock()
		return false
	}
	// Handler calls of the new sequence wait for w.mu, so seq is set before them.
	seq, have, err := w.admit(j)
	if err != nil {
		j.releaseFree()
		if errors.Is(err, engine.ErrNoCells) || errors.Is(err, engine.ErrNoSlot) {
			w.mu.Unlock()
			return false
		}
		j.leave()
		w.mu.Unlock()
		w.broken(j, admissionCause(err))
		return true
	}
	j.seq = seq
	j.leave()
	w.mu.Unlock()
	if j.Room != 0 {
		w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Admitted(now, j.Room, have) })
	}
	return true
}

// haveTries bounds how often a prefix that went away between the question and the
// admission is asked for again; then the hand-over does without.
const haveTries = 3

// admit hands a request to the engine: with what the engine's own cache has of a
// room's prompt, and with the first choice's prompt for the others.
func (w *Worker) admit(j *job) (seq *engine.Seq, have int32, err error) {
	r := &engine.Request{RID: j.RID, Room: j.Room, Tokens: j.Tokens, Gen: &j.Params, Due: j.Due,
		PromptLogprobs: j.PromptLogprobs, PromptFrom: j.PromptFrom}
	if f := j.first; f != nil && f.seq != nil && !f.seqDone {
		r.After = f.seq
	}
	if j.Room == 0 {
		seq, err = w.cfg.Engine.Admit(r, j)
		if r.After != nil && errors.Is(err, engine.ErrEnded) {
			// The first choice ended before its Done could be heard here: a short answer.
			r.After = nil
			seq, err = w.cfg.Engine.Admit(r, j)
		}
		return seq, 0, err
	}
	r.KV = engine.Imported
	for try := 1; ; try++ {
		r.Have = 0
		if try < haveTries {
			r.Have = int32(w.cfg.Engine.Cached(j.Tokens))
		}
		if seq, err = w.cfg.Engine.Admit(r, j); !errors.Is(err, engine.ErrHaveGone) {
			return seq, r.Have, err
		}
	}
}

// broken ends a request because of a fault on this worker, all its choices.
func (w *Worker) broken(j *job, cause *room.Cause) {
	top := j.top()
	if top.Room != 0 {
		w.fail(top.Room, cause)
	}
	// A room whose hand-over is complete has ended for its book: the choices end here.
	j.gen.end(cause, engine.Result{Err: cause})
	w.stopJob(top, cause)
}

// takeBuffer takes the room's import buffer, all of it or nothing.
func (w *Worker) takeBuffer(j *job) bool {
	for range w.windowChunks(len(j.Tokens)) {
		lease, err := w.cfg.Arena.Alloc(w.chunkBytes(len(j.Tokens)), "room "+j.Room.String())
		if err != nil {
			j.releaseFree()
			return false
		}
		j.free = append(j.free, lease)
	}
	return true
}

func (j *job) releaseFree() {
	for _, l := range j.free {
		l.Release()
	}
	j.free = nil
}

// returnLease puts a buffer back into the room's window.
func (w *Worker) returnLease(j *job, l *kv.Lease) {
	w.mu.Lock()
	j.free = append(j.free, l)
	w.mu.Unlock()
}

func admissionCause(err error) *room.Cause {
	var long *engine.TooLongError
	switch {
	case errors.As(err, &long):
		return room.Because(room.TooLong, "%v", err)
	case errors.Is(err, engine.ErrClosed):
		return room.Because(room.Draining, "%v", err)
	}
	return failureOf(err)
}

func causeOf(err error) *room.Cause {
	var c *room.Cause
	if errors.As(err, &c) {
		return c
	}
	return room.Because(room.Draining, "the engine was stopped: %v", err)
}

func (w *Worker) fail(rm id.Room, cause *room.Cause) {
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Fail(now, rm, cause) })
}
