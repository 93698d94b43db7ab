package prefill

import (
	"container/list"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
)

// job is one room on this worker. Worker.mu guards it.
type job struct {
	Request
	answer chan *room.Cause // cap 1: written once
	record *flight.Record

	queue    *fifo         // the one it stands in, nil if none
	place    *list.Element // where
	pairing  bool          // READY came while an evicted run still winds down
	run      *run          // resources, nil without
	have     int32         // what decode has of the prompt; engine.SparedUnknown before READY
	stopped  bool          // StopWork came: Freed is owed
	answered bool          // the leg has its answer
}

// run is one admission of a room: its engine sequence and its chunks. An evicted
// room's next admission is another run.
type run struct {
	w   *Worker
	job *job
	seq *engine.Seq

	early   bool        // counts as unpaired
	told    bool        // the book knows of the admission
	free    []*kv.Lease // of the share, unused
	leases  int         // held in all
	space   *kv.Lease   // given to the engine, not yet exported
	paused  bool        // Space had none
	chunks  []chunk
	inAir   int  // chunks with the data plane
	ended   bool // the engine is finished with it
	evicted bool // READY did not come in time, or not before another room's
}

// chunk is one exported chunk.
type chunk struct {
	lease  *kv.Lease // nil once acknowledged
	p0, p1 int32
	bytes  int
	sum    uint64 // kv.Sum of the payload
	last   bool
}

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
