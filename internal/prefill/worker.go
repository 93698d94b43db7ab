package prefill

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/keeper"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Defaults of Config.
const (
	DefaultMaxQueue = 16384 // legs that wait for resources: 10,000 clients at once, with room
	DefaultUnpaired = 8     // rooms that compute before their READY
	// ShareChunks is a room's arena share: one chunk is computed while the other
	// one travels.
	ShareChunks = 2
	// MaxRoomChunks bounds the chunks one room may have exported and not yet
	// acknowledged, beyond its share as far as the arena has space.
	MaxRoomChunks = 8
)

// Config is what a Worker is made of.
type Config struct {
	Engine   engine.Engine
	Arena    *kv.Arena
	Recorder *flight.Recorder
	Log      *slog.Logger

	MaxQueue int         // legs without resources; more are refused with queue_full. DefaultMaxQueue
	Unpaired int         // rooms computing without READY. DefaultUnpaired; negative: none
	Limits   room.Limits // the protocol's bounds
}

// Worker is a prefill worker. It implements transfer.SourceHandler; Control
// returns what hears its sessions.
type Worker struct {
	cfg    Config
	info   engine.Info
	keeper *keeper.Keeper
	log    *slog.Logger
	poke   chan struct{} // cap 1: something may be admitted
	source transfer.Source
	send   func(to id.Incarnation, m room.Message) error

	mu       sync.Mutex
	jobs     map[id.Room]*job
	paired   fifo // READY is here
	unpaired fifo
	ahead    []*run // that compute without READY, in the order of their admission
}

// New returns a worker; Start makes it work.
func New(cfg Config) *Worker {
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = DefaultMaxQueue
	}
	if cfg.Unpaired == 0 {
		cfg.Unpaired = DefaultUnpaired
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	w := &Worker{cfg: cfg, info: cfg.Engine.Info(), log: cfg.Log, poke: make(chan struct{}, 1), jobs: make(map[id.Room]*job)}
	w.keeper = keeper.New(room.New(room.Prefill, w.info.Chunk, cfg.Limits), w.perform)
	return w
}

// Start starts the worker's loops in g. Its chunks go to source, whose handler it
// is; its messages to send, which must never block.
func (w *Worker) Start(g *svc.Group, source transfer.Source, send func(to id.Incarnation, m room.Message) error) {
	w.source, w.send = source, send
	g.Go("prefill-sweep", w.keeper.Sweep)
	g.Go("prefill-admit", w.admitLoop)
	g.Queue("bootstrap", func() svc.QueueState { return w.queue(room.Bootstrapping, room.Computing) })
	g.Queue("waiting", func() svc.QueueState { return w.queue(room.WaitingForInput) })
	g.Queue("inflight", func() svc.QueueState { return w.queue(room.Transferring) })
}

func (w *Worker) queue(states ...room.State) (q svc.QueueState) {
	w.keeper.Look(func(b *room.Book) {
		for _, s := range states {
			q.Len += b.Counts(s)
		}
	})
	return q
}

// Request is the router's leg for one room.
type Request struct {
	RID    id.RID
	Room   id.Room
	Tokens []engine.Token
	Due    time.Time // when the request must have ended
}

// Serve hands one request's KV over. It returns when the room is terminal: with
// code Done on success. When ctx ends the room is aborted, with ctx's cause if
// that is a *room.Cause and leg_lost otherwise.
func (w *Worker) Serve(ctx context.Context, r Request) *room.Cause {
	if n := len(r.Tokens) - 1; n > w.info.Cells {
		return room.Because(room.TooLong, "prompt of %d tokens exceeds the prefill context of %d", len(r.Tokens), w.info.Cells)
	}
	j, refused := w.open(r)
	if refused != nil {
		return refused
	}
	select {
	case c := <-j.answer:
		return c
	case <-ctx.Done():
	}
	w.Abort(r.RID, r.Room, abortCause(ctx))
	return <-j.answer // an abort is answered at once: the room was live, or has ended already
}

func abortCause(ctx context.Context) *room.Cause {
	var c *room.Cause
	if errors.As(context.Cause(ctx), &c) {
		return c
	}
	return room.Because(room.LegLost, "the router's connection ended")
}

// open creates the room, or says why not.
func (w *Worker) open(r Request) (j *job, refused *room.Cause) {
	w.mu.Lock()
	if n := w.paired.len() + w.unpaired.len(); n >= w.cfg.MaxQueue {
		w.mu.Unlock()
		return nil, room.Because(room.QueueFull, "%d requests wait for prefill already, the limit is %d", n, w.cfg.MaxQueue)
	}
	w.mu.Unlock()
	digest := room.TokenDigest(r.Tokens)
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect {
		fx := b.LegArrived(now, room.Leg{Room: r.Room, RID: r.RID, Tokens: int32(len(r.Tokens)), Digest: digest, Deadline: w.keeper.Mono(r.Due)})
		if f, ok := refusal(fx); ok {
			refused = f
			return nil
		}
		j = &job{Request: r, answer: make(chan *room.Cause, 1), record: w.cfg.Recorder.Open(r.RID, r.Room, len(r.Tokens)), have: engine.SparedUnknown}
		w.mu.Lock()
		w.jobs[r.Room] = j
		w.mu.Unlock()
		w.spared(b, r.Room) // READY may have come first
		return fx
	})
	return j, refused
}

// refusal returns why a leg made no room, if it made none.
func refusal(fx []room.Effect) (*room.Cause, bool) {
	for _, e := range fx {
		if f, ok := e.(room.Refuse); ok {
			return f.Cause, true
		}
	}
	return nil, false
}

// Abort ends a request by its exact id, or with a room only that attempt of it.
// For an unknown one it is parked and applied when the request arrives.
func (w *Worker) Abort(rid id.RID, rm id.Room, cause *room.Cause) {
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Abort(now, rid, rm, cause) })
}

// Drain refuses new legs and ends the rooms that no decode waits for.
func (w *Worker) Drain() { w.keeper.Do((*room.Book).Drain) }

// Counts returns how many rooms are in each state that holds something.
func (w *Worker) Counts() map[room.State]int {
	out := make(map[room.State]int)
	w.keeper.Look(func(b *room.Book) {
		for s := room.Parked; s <= room.Failed; s++ {
			out[s] = b.Counts(s)
		}
	})
	return out
}

// Book returns the book's own counters: what was dropped by reason, and how many
// ended rooms are remembered.
func (w *Worker) Book() (drops map[string]uint64, remembered int) {
	w.keeper.Look(func(b *room.Book) { drops, remembered = b.Drops(), b.Remembered() })
	return drops, remembered
}
