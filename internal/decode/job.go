package decode

import (
	"container/list"
	"errors"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

var (
	_ engine.Handler       = (*job)(nil)
	_ engine.PromptHandler = (*job)(nil)
)

// job is one request on this worker. Worker.mu guards it, but for gen.
type job struct {
	Request
	w         *Worker
	gen       *Generation
	record    *flight.Record
	bootstrap string // host:port of the prefill worker's registry; "" for a local request

	first  *job   // of the second to n-th choice: the first one; nil otherwise
	others []*job // of the first choice: the others
	spread bool   // the others were put in line

	queue     *fifo
	place     *list.Element
	seq       *engine.Seq
	free      []*kv.Lease // of the import buffer, unused
	reading   int         // leases that the transport fills
	importing []arrival   // with the engine, in order
	committed bool        // the hand-over is complete
	seqDone   bool        // the engine is finished with it
	stopped   bool        // StopWork came: Freed is owed
	result    engine.Result
}

// arrival is one chunk that came and was verified.
type arrival struct {
	from  id.Incarnation
	h     transfer.Header
	lease *kv.Lease
	sum   uint64 // kv.Sum of the payload
}

// Space and Exported never come: the request exports nothing.
func (j *job) Space(_, _ int32, _ int) []byte      { return nil }
func (j *job) Exported(_, _ int32, _ int, _ error) {}

// Token hands one token to the stream.
func (j *job) Token(t engine.Token, _ int32, lp *engine.Logprobs) {
	j.gen.token(Out{t, lp})
	if len(j.others) > 0 {
		j.w.spread(j)
	}
}

// PromptToken keeps what the prompt's tokens would have been expected with.
func (j *job) PromptToken(t engine.Token, _ int32, lp *engine.Logprobs) {
	j.gen.promptToken(Out{t, lp})
}

// Imported takes the oldest chunk's buffer back from the engine.
func (j *job) Imported(_, _ int32, err error) {
	w := j.w
	w.mu.Lock()
	a := j.importing[0]
	j.importing = j.importing[1:]
	w.mu.Unlock()
	if err != nil {
		w.returnLease(j, a.lease)
		w.sink.Ack(a.from, a.h)
		w.fail(j.Room, room.Because(room.Corrupt, "chunk %d [%d, %d): %v", a.h.Seq, a.h.P0, a.h.P1, err))
		w.finished(j)
		return
	}
	w.imported(j, a)
}

// imported counts one chunk as part of the sequence and asks for the next.
func (w *Worker) imported(j *job, a arrival) {
	w.returnLease(j, a.lease)
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect {
		return b.Imported(now, j.Room, a.h.Gen, a.h.Bytes, a.sum)
	})
	// After the book: an acknowledgement lets the next chunk come.
	w.sink.Ack(a.from, a.h)
	w.finished(j)
}

// Done ends the job's use of the engine.
func (j *job) Done(res engine.Result) {
	w := j.w
	w.mu.Lock()
	j.seqDone, j.result = true, res
	committed := j.committed
	w.mu.Unlock()
	switch res.Finish {
	case engine.FinishStop, engine.FinishLength:
		if committed { // else the hand-over is slower: a prompt of one token needs no KV
			j.gen.end(&room.Cause{Code: room.Done}, res)
			w.spread(j)
		}
	case engine.FinishFailed:
		w.broken(j, failureOf(res.Err))
	default:
		j.gen.end(causeOf(res.Err), res)
		w.spread(j)
	}
	w.finished(j)
	w.wakeAdmission()
}

// failureOf says whose fault a failed sequence is.
func failureOf(err error) *room.Cause {
	var param *engine.ParamError
	var grammar *engine.GrammarError
	if errors.As(err, &param) || errors.As(err, &grammar) || errors.Is(err, engine.ErrNoGrammar) {
		return room.Because(room.BadRequest, "%v", err)
	}
	return room.Because(room.EngineFailed, "%v", err)
}

// top returns the first choice's job.
func (j *job) top() *job {
	if j.first != nil {
		return j.first
	}
	return j
}

// choices returns the first choice's job and the others'.
func (j *job) choices() []*job { return append([]*job{j}, j.others...) }

// busy says whether something still uses the job's memory, or will.
func (j *job) busy() bool {
	return j.queue != nil || j.seq != nil && !j.seqDone || j.reading > 0 || len(j.importing) > 0
}
