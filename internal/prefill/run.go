package prefill

import (
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

var (
	_ engine.Handler         = (*run)(nil)
	_ transfer.SourceHandler = (*Worker)(nil)
)

// Space lends the engine memory for the next chunk: from the room's share, or
// beyond it when READY is here and the arena has some. Otherwise the sequence
// pauses until a chunk is acknowledged.
func (r *run) Space(_, _ int32, size int) []byte {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if len(r.free) == 0 && (r.early || r.leases >= MaxRoomChunks || !r.grow(size)) {
		r.paused = true
		return nil
	}
	last := len(r.free) - 1
	r.space, r.free = r.free[last], r.free[:last]
	return r.space.Bytes()
}

// Exported keeps the chunk and tells the book, which decides when it is published.
func (r *run) Exported(p0, p1 int32, n int, err error) {
	w := r.w
	w.mu.Lock()
	lease := r.space
	r.space = nil
	if err != nil { // Done follows with the error
		r.giveBack(lease)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	c := chunk{lease: lease, p0: p0, p1: p1, bytes: n, last: int(p1) == len(r.job.Tokens)-1}
	if lease != nil { // decode has a chunk that was spared
		c.sum = kv.Sum(lease.Bytes()[:n])
	}
	r.exported(c)
}

func (r *run) exported(c chunk) {
	w := r.w
	w.mu.Lock()
	r.chunks = append(r.chunks, c)
	w.mu.Unlock()
	if c.last {
		r.job.record.Note("computed", "exported", "")
	}
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect {
		w.mu.Lock()
		current := r.job.run == r && !r.evicted && !r.job.stopped
		w.mu.Unlock()
		if !current {
			return nil // of an evicted or stopped run
		}
		fx := w.admitted(b, now, r)
		return append(fx, b.Exported(now, r.job.Room, c.bytes, c.sum, c.last)...)
	})
}

// Imported and Token never come: the request imports and generates nothing.
func (r *run) Imported(_, _ int32, _ error)                {}
func (r *run) Token(engine.Token, int32, *engine.Logprobs) {}

// Done ends the run's use of the engine.
func (r *run) Done(res engine.Result) {
	w, j := r.w, r.job
	if res.Finish == engine.FinishPrefilled && len(j.Tokens) == 1 {
		// Nothing travels; an empty chunk says that the leg is here.
		w.mu.Lock()
		lease := r.free[0]
		r.free = r.free[1:]
		w.mu.Unlock()
		r.exported(chunk{lease: lease, sum: kv.Sum(nil), last: true})
	}
	if res.Finish == engine.FinishFailed {
		w.fail(j.Room, room.Because(room.EngineFailed, "prefill: %v", res.Err))
	}
	w.mu.Lock()
	r.ended = true
	r.releaseFree()
	w.mu.Unlock()
	w.freed(j)
	w.wakeAdmission()
}
