package prefill

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

// recheck is how long the admission loop sleeps at most: arena space that other
// rooms give back is not signalled.
const recheck = 50 * time.Millisecond

// wakeAdmission tells the admission loop to look again.
func (w *Worker) wakeAdmission() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// admitLoop gives resources to the rooms at the heads of the queues.
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
		if w.paired.len()+w.unpaired.len() > 0 {
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

// admitNext admits one room, if the first in line fits. It says whether to go on.
func (w *Worker) admitNext() bool {
	r, more := w.place()
	if r != nil {
		w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return w.admitted(b, now, r) })
	}
	return more
}

// place gives the first in line its resources and hands it to the engine, which may
// export its first chunk from then on. The book is still to be told.
func (w *Worker) place() (admitted *run, more bool) {
	w.mu.Lock()
	j, early := w.paired.front(), false
	if j == nil && len(w.ahead) < w.cfg.Unpaired {
		j, early = w.unpaired.front(), true
	}
	if j == nil {
		w.mu.Unlock()
		return nil, false
	}
	r := &run{w: w, job: j, early: early}
	if !r.takeShare() {
		rm := w.yielding(early)
		w.mu.Unlock()
		w.yield(rm)
		return nil, false
	}
	// Handler calls of the new sequence wait for w.mu, so seq is set before them.
	seq, err := w.cfg.Engine.Admit(&engine.Request{RID: j.RID, Room: j.Room, Tokens: j.Tokens, KV: engine.Compute, Export: true, Spared: j.have, Due: j.Due}, r)
	if err != nil {
		r.releaseFree()
		if errors.Is(err, engine.ErrNoCells) || errors.Is(err, engine.ErrNoSlot) {
			rm := w.yielding(early)
			w.mu.Unlock()
			w.yield(rm)
			return nil, false
		}
		j.leave()
		w.mu.Unlock()
		w.fail(j.Room, admissionCause(err))
		return nil, true
	}
	r.seq = seq
	j.run = r
	j.leave()
	if early {
		w.ahead = append(w.ahead, r)
	}
	w.mu.Unlock()
	return r, true
}

// yielding returns the room that has to make way for the first in line, which does not
// fit: the one that was admitted last without READY. Decode may be waiting for the one
// in line and not get to the other before it has it. It is 0 if the first in line is no
// better, or if one is making way already. The caller holds mu.
func (w *Worker) yielding(early bool) id.Room {
	if early || len(w.ahead) == 0 || slices.ContainsFunc(w.ahead, func(r *run) bool { return r.evicted }) {
		return 0
	}
	return w.ahead[len(w.ahead)-1].job.Room
}

func (w *Worker) yield(rm id.Room) {
	if rm != 0 {
		w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Yield(now, rm) })
	}
}

// paid takes a run off those that are ahead of their READY. The caller holds mu.
func (w *Worker) paid(r *run) {
	r.early = false
	if i := slices.Index(w.ahead, r); i >= 0 {
		w.ahead = slices.Delete(w.ahead, i, i+1)
	}
}

// admitted tells the book, once, that a run has its resources. The engine may
// export its first chunk before the admission loop gets here, and the book must
// hear of the admission first. Called under the keeper's lock.
func (w *Worker) admitted(b *room.Book, now room.Mono, r *run) []room.Effect {
	w.mu.Lock()
	told := r.told
	r.told = true
	w.mu.Unlock()
	if told {
		return nil
	}
	return b.Admitted(now, r.job.Room, 0)
}

func admissionCause(err error) *room.Cause {
	var long *engine.TooLongError
	switch {
	case errors.As(err, &long):
		return room.Because(room.TooLong, "%v", err)
	case errors.Is(err, engine.ErrClosed):
		return room.Because(room.Draining, "%v", err)
	}
	return room.Because(room.EngineFailed, "%v", err)
}

func (w *Worker) fail(rm id.Room, cause *room.Cause) {
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Fail(now, rm, cause) })
}

// takeShare takes the arena share that admission promises: memory for two chunks,
// or for all there are if fewer.
func (r *run) takeShare() bool {
	n := len(r.job.Tokens) - 1
	c := r.w.info.Chunk
	for i := 0; i < ShareChunks && (i == 0 || i*c < n); i++ {
		if !r.grow(r.w.cfg.Engine.ChunkBytes(min(n, c))) {
			r.releaseFree()
			return false
		}
	}
	return true
}

// grow takes one more chunk's memory from the arena, if it has it now.
func (r *run) grow(size int) bool {
	lease, err := r.w.cfg.Arena.Alloc(size, "room "+r.job.Room.String())
	if err != nil {
		return false
	}
	r.free = append(r.free, lease)
	r.leases++
	return true
}

// giveBack puts a lease into the share again, or returns what exceeds the share.
func (r *run) giveBack(l *kv.Lease) {
	if r.ended || len(r.free) >= ShareChunks {
		l.Release()
		r.leases--
		return
	}
	r.free = append(r.free, l)
}

// take takes a chunk's lease back, which nobody reads any more. It returns the
// sequence to be resumed, if it paused for want of this memory.
func (r *run) take(index int) *engine.Seq {
	c := &r.chunks[index]
	if c.lease == nil {
		return nil
	}
	r.giveBack(c.lease)
	c.lease = nil
	if !r.paused || len(r.free) == 0 {
		return nil
	}
	r.paused = false
	return r.seq
}

func (r *run) releaseFree() {
	for _, l := range r.free {
		l.Release()
		r.leases--
	}
	r.free = nil
}

// releaseAll returns every lease the run still has. Nothing reads them any more.
func (r *run) releaseAll() {
	r.releaseFree()
	for i := range r.chunks {
		if l := r.chunks[i].lease; l != nil {
			l.Release()
			r.leases--
			r.chunks[i].lease = nil
		}
	}
}
