package decode

import (
	"context"
	"log/slog"
	"net"
	"strconv"
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
	DefaultMaxQueue = 16384 // requests that wait for KV cells
	// WindowChunks is a room's import buffer: one chunk is imported while the
	// next one arrives.
	WindowChunks = 2
)

// Config is what a Worker is made of.
type Config struct {
	Engine   engine.Engine
	Arena    *kv.Arena // import buffers; nil in a worker that serves alone
	Recorder *flight.Recorder
	Log      *slog.Logger

	MaxQueue int         // requests without cells; more are refused with queue_full. DefaultMaxQueue
	Limits   room.Limits // the protocol's bounds
}

// Sessions is what the worker needs of control.Node.
type Sessions interface {
	Send(to id.Incarnation, m room.Message) error
	Dial(addr string)
	Forget(addr string)
	Reset(to id.Incarnation, cause error)
}

// Lookup asks the registry at a bootstrap address (host:port) where that prefill
// worker's control port is. A *room.Cause says why there will be no session with
// it: the rooms that wait for one end with that.
type Lookup func(ctx context.Context, bootstrap string) (control string, err error)

// Worker is a decode worker. It implements transfer.SinkHandler; Control returns
// what hears its sessions.
type Worker struct {
	cfg    Config
	info   engine.Info
	keeper *keeper.Keeper
	log    *slog.Logger
	poke   chan struct{} // cap 1: something may be admitted
	group  *svc.Group
	peers  peers

	sink     transfer.Sink // nil in a worker that serves alone: it refuses rooms
	sessions Sessions
	lookup   Lookup

	mu       sync.Mutex
	jobs     map[id.Room]*job
	locals   map[id.RID]*job
	queue    fifo
	draining bool
}

// New returns a worker; Start makes it work.
func New(cfg Config) *Worker {
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = DefaultMaxQueue
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	w := &Worker{cfg: cfg, info: cfg.Engine.Info(), log: cfg.Log, poke: make(chan struct{}, 1),
		jobs: make(map[id.Room]*job), locals: make(map[id.RID]*job)}
	w.peers = newPeers(w)
	w.keeper = keeper.New(room.New(room.Decode, w.info.Chunk, cfg.Limits), w.perform)
	return w
}

// Links are a worker's connections to prefill workers.
type Links struct {
	Sink     transfer.Sink // bytes; its handler is the worker
	Sessions Sessions      // messages; its handler is Worker.Control
	Lookup   Lookup        // finds a prefill worker's control address
}

// Start starts the worker's loops in g. With links nil it serves alone.
func (w *Worker) Start(g *svc.Group, links *Links) {
	w.group = g
	if links != nil {
		w.sink, w.sessions, w.lookup = links.Sink, links.Sessions, links.Lookup
	}
	g.Go("decode-sweep", w.keeper.Sweep)
	g.Go("decode-admit", w.admitLoop)
	if w.sessions != nil {
		g.Go("decode-peers", w.peers.loop)
	}
	g.Queue("prealloc", func() svc.QueueState { return svc.QueueState{Len: w.Queues().Prealloc} })
	g.Queue("transfer", func() svc.QueueState { return svc.QueueState{Len: w.Queues().Transfer} })
}

// Request is one generation.
type Request struct {
	RID    id.RID
	Tokens []engine.Token
	Params engine.Params
	N      int       // choices; 0 means 1. They share the prompt's KV and, if any, one hand-over
	Due    time.Time // when it must have ended

	Wake chan struct{} // cap 1, to wait for several generations at once; nil: one of its own

	PromptLogprobs int // as in engine.Request; needs Room 0
	PromptFrom     int32

	Room id.Room // 0: computed here from the start
	Host string  // the prefill worker's registry, for a room
	Port int
}

// Begin starts a request, or says why not. When ctx ends the caller calls Abort;
// it takes from the Generation until that has ended.
func (w *Worker) Begin(r Request) (*Generation, *room.Cause) {
	n := len(r.Tokens)
	if need := n + r.Params.MaxTokens; need > w.info.Cells {
		e := engine.TooLongError{Prompt: n, MaxTokens: r.Params.MaxTokens, Cells: w.info.Cells}
		return nil, room.Because(room.TooLong, "%v", &e)
	}
	w.mu.Lock()
	queued, draining := w.queue.len(), w.draining
	w.mu.Unlock()
	if queued >= w.cfg.MaxQueue {
		return nil, room.Because(room.QueueFull, "%d requests wait for KV cells already, the limit is %d", queued, w.cfg.MaxQueue)
	}
	if draining {
		return nil, room.Because(room.Draining, "this worker takes no new requests")
	}
	if r.Room == 0 {
		return w.beginLocal(r)
	}
	return w.beginRoom(r)
}

func (w *Worker) beginLocal(r Request) (*Generation, *room.Cause) {
	w.mu.Lock()
	if w.locals[r.RID] != nil {
		w.mu.Unlock()
		return nil, room.Because(room.DuplicateRoom, "request %s is in progress here already", r.RID)
	}
	j := w.newJob(r, true)
	w.locals[r.RID] = j
	w.queue.push(j)
	w.mu.Unlock()
	w.wakeAdmission()
	return j.gen, nil
}

func (w *Worker) beginRoom(r Request) (gen *Generation, refused *room.Cause) {
	switch {
	case w.sessions == nil:
		return nil, room.Because(room.BadRequest, "bootstrap_room: this worker serves alone and takes no hand-over")
	case r.Host == "" || r.Port < 1 || r.Port > 65535:
		return nil, room.Because(room.BadRequest, "bootstrap_host, bootstrap_port: %q and %d name no prefill worker", r.Host, r.Port)
	case w.info.HandOver != "":
		return nil, room.Because(room.LayoutMismatch, "KV of this model cannot be handed over: %s", w.info.HandOver)
	}
	leg := room.Leg{Room: r.Room, RID: r.RID, Tokens: int32(len(r.Tokens)), Digest: room.TokenDigest(r.Tokens),
		Window: int64(w.windowChunks(len(r.Tokens)) * w.chunkBytes(len(r.Tokens))), Deadline: w.keeper.Mono(r.Due)}
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect {
		fx := b.LegArrived(now, leg)
		for _, e := range fx {
			if f, ok := e.(room.Refuse); ok {
				refused = f.Cause
				return nil
			}
		}
		w.mu.Lock()
		j := w.newJob(r, false)
		w.jobs[r.Room] = j
		w.mu.Unlock()
		gen = j.gen
		return fx
	})
	return gen, refused
}

func (w *Worker) newJob(r Request, local bool) *job {
	n := max(r.N, 1)
	rec := w.cfg.Recorder.Open(r.RID, r.Room, len(r.Tokens))
	all := newChoices(rec, n, local, r.Wake)
	j := &job{Request: r, w: w, gen: all.list[0], record: rec, committed: local}
	for i := 1; i < n; i++ {
		x := &job{Request: r, w: w, gen: all.list[i], record: rec, first: j, committed: true}
		x.Room, x.PromptLogprobs = 0, 0
		x.Params.Seed = choiceSeed(r.Params.Seed, i)
		j.others = append(j.others, x)
	}
	for _, x := range j.choices() {
		x.gen.abort = func(cause *room.Cause) {
			if cause.Code == room.Done {
				w.stopChoice(x)
				return
			}
			w.Abort(r.RID, r.Room, cause)
		}
	}
	if !local {
		j.bootstrap = net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	}
	return j
}

// choiceSeed gives the i-th choice a random stream of its own, which the seed
// still reproduces. The constant is 2⁶⁴ divided by the golden ratio, as in
// SplitMix64: successive streams lie far apart.
func choiceSeed(seed uint64, i int) uint64 { return seed + uint64(i)*0x9e3779b97f4a7c15 }

// windowChunks returns the chunks of a prompt's import buffer, and chunkBytes the
// bytes of one: of the largest chunk the hand-over has.
func (w *Worker) windowChunks(tokens int) int {
	n, c := tokens-1, w.info.Chunk
	return max(1, min(WindowChunks, (n+c-1)/c))
}

func (w *Worker) chunkBytes(tokens int) int {
	if tokens <= 1 {
		return 0
	}
	return w.cfg.Engine.ChunkBytes(min(tokens-1, w.info.Chunk))
}

// Abort ends a request by its exact id, in whatever state it is, or with a room
// only that attempt of it. For an unknown one the abort is parked and applied
// when the request arrives.
func (w *Worker) Abort(rid id.RID, rm id.Room, cause *room.Cause) {
	w.mu.Lock()
	j := w.locals[rid]
	w.mu.Unlock()
	if j != nil {
		w.stopJob(j, cause)
		j.gen.end(cause, engine.Result{})
		w.finished(j)
		return
	}
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return b.Abort(now, rid, rm, cause) })
}

// Drain refuses new requests and ends those that hold nothing yet.
func (w *Worker) Drain() {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.keeper.Do((*room.Book).Drain)
}

// Queues counts requests by what they wait for.
type Queues struct {
	Prealloc int // no KV cells
	Transfer int // cells held, hand-over not complete
	Waiting  int // admitted by the engine, nothing evaluated yet
	Running  int // generating, or computing a prompt of their own
}

// Queues returns the counts now.
func (w *Worker) Queues() Queues {
	var q Queues
	w.keeper.Look(func(b *room.Book) {
		q.Prealloc = b.Counts(room.Prealloc)
		q.Transfer = b.Counts(room.Bootstrapping) + b.Counts(room.WaitingForInput) + b.Counts(room.Transferring)
	})
	w.mu.Lock()
	for _, j := range w.locals {
		if j.seq == nil && !j.stopped {
			q.Prealloc++
		}
	}
	w.mu.Unlock()
	load := w.cfg.Engine.Load()
	q.Running = load.Decoding
	q.Waiting = max(0, load.Waiting+load.Prefilling-q.Transfer)
	return q
}

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
