package transfertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Setup is what a Factory builds a pair from.
type Setup struct {
	Source, Sink  id.Incarnation
	SourceHandler transfer.SourceHandler
	SinkHandler   transfer.SinkHandler
	SourceArena   *kv.Arena // published leases come from it
	SinkArena     *kv.Arena // accepted leases come from it
	MaxQueued     int       // chunks published and not settled, per peer
}

// Factory makes a transport's two ends.
type Factory struct {
	// Network and Source.Addr are what net.Dial takes to reach the listener.
	Network string
	// Shared says that SourceArena must be a shared one.
	Shared bool
	// New returns the two ends, not yet running. It fails the test on an error.
	New func(t testing.TB, s Setup) (transfer.Source, transfer.Sink)
}

// patience bounds every wait for something that must happen. It is generous:
// the race detector on a loaded machine is slow.
const patience = 20 * time.Second

const (
	arenaBytes = 64 << 20
	maxQueued  = 16
)

// rig is one pair, running, with handlers that keep the books.
type rig struct {
	t            *testing.T
	f            Factory
	src          transfer.Source
	snk          transfer.Sink
	srcID, snkID id.Incarnation
	srcArena     *kv.Arena
	snkArena     *kv.Arena
	stopSrc      context.CancelFunc
	stopSnk      context.CancelFunc
	srcDone      chan struct{}
	snkDone      chan struct{}

	mu        sync.Mutex
	cond      *sync.Cond
	published map[kv.ChunkID]int // accepted Publishes
	settled   map[kv.ChunkID][]error
	arrived   []transfer.Header
	bad       []string // Arrived with an error, or wrong bytes
	ups       int
	downs     int
	snkDowns  int
	faults    []string // broken promises

	// Policy of the sink, under mu.
	refuse func(transfer.Header) bool // discard it
	hold   bool                       // do not acknowledge
	kept   []transfer.Header          // arrived and not acknowledged
	gate   chan struct{}              // Accept waits for it: a frozen sink
}

func newRig(t *testing.T, f Factory) *rig {
	t.Helper()
	r := &rig{t: t, f: f, srcID: id.NewIncarnation(), snkID: id.NewIncarnation(),
		published: map[kv.ChunkID]int{}, settled: map[kv.ChunkID][]error{}}
	r.cond = sync.NewCond(&r.mu)
	goroutines, fds := baseline()
	var err error
	if r.srcArena, err = kv.NewArena(kv.ArenaConfig{Bytes: arenaBytes, Shared: f.Shared, Strict: true}); err != nil {
		t.Fatal(err)
	}
	if r.snkArena, err = kv.NewArena(kv.ArenaConfig{Bytes: arenaBytes, Strict: true}); err != nil {
		t.Fatal(err)
	}
	r.src, r.snk = f.New(t, Setup{Source: r.srcID, Sink: r.snkID, SourceHandler: sourceSide{r}, SinkHandler: sinkSide{r},
		SourceArena: r.srcArena, SinkArena: r.snkArena, MaxQueued: maxQueued})
	r.srcDone, r.stopSrc = run(r.src.Run)
	r.snkDone, r.stopSnk = run(r.snk.Run)
	t.Cleanup(func() { r.finish(goroutines, fds) })
	return r
}

func run(fn func(context.Context) error) (chan struct{}, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { defer close(done); fn(ctx) })
	return done, cancel
}

// finish ends both sides and checks what must hold after any test.
func (r *rig) finish(goroutines, fds int) {
	t := r.t
	r.thaw()
	r.stopSrc()
	r.stopSnk()
	for _, done := range []chan struct{}{r.srcDone, r.snkDone} {
		select {
		case <-done:
		case <-time.After(patience):
			buf := make([]byte, 1<<20)
			t.Fatalf("Run does not return:\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
	r.mu.Lock()
	for id, n := range r.published {
		if got := len(r.settled[id]); got != n {
			t.Errorf("chunk %+v was published %d times and settled %d times", id, n, got)
		}
	}
	for id := range r.settled {
		if r.published[id] == 0 {
			t.Errorf("chunk %+v was settled and never published", id)
		}
	}
	if r.ups != r.downs {
		t.Errorf("source: %d LinkUp, %d LinkDown", r.ups, r.downs)
	}
	for _, f := range r.faults {
		t.Error(f)
	}
	r.mu.Unlock()
	if st := r.src.Stats(); st.Links != 0 || st.Queued != 0 || st.Held != 0 {
		t.Errorf("source after the end: %+v", st)
	}
	for name, a := range map[string]*kv.Arena{"source": r.srcArena, "sink": r.snkArena} {
		if st := a.Stats(); st.Leases != 0 || st.Misuse != 0 {
			t.Errorf("%s arena after the end: %+v", name, st)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s arena: %v", name, err)
		}
	}
	deadline := time.Now().Add(patience)
	for {
		g, f := baseline()
		if g <= goroutines && f <= fds {
			return
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("goroutines %d → %d, descriptors %d → %d\n%s", goroutines, g, fds, f, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched() // ended goroutines and closed sockets are still being counted
	}
}

// baseline counts goroutines and descriptors.
func baseline() (goroutines, fds int) {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return runtime.NumGoroutine(), 0
	}
	return runtime.NumGoroutine(), len(d)
}

// connect opens a link and waits until both ends know.
func (r *rig) connect() {
	r.t.Helper()
	r.mu.Lock()
	ups := r.ups
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.snk.Open(ctx, r.srcID, r.src.Addr(), r.src.Issue(r.snkID)); err != nil {
		r.t.Fatalf("Open: %v", err)
	}
	r.wait("LinkUp", func() bool { return r.ups > ups })
}

// wait returns when cond, called under mu, holds.
func (r *rig) wait(what string, cond func() bool) {
	r.t.Helper()
	late := time.AfterFunc(patience, r.cond.Broadcast)
	defer late.Stop()
	end := time.Now().Add(patience)
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		if !time.Now().Before(end) {
			r.t.Fatalf("never: %s; arrived %d, settled %d of %d, ups %d, downs %d", what, len(r.arrived), len(r.settled), len(r.published), r.ups, r.downs)
		}
		r.cond.Wait()
	}
}

// chunk makes a chunk with random content. The caller publishes the lease, or
// releases it.
func (r *rig) chunk(room id.Room, seq uint32, n int) (transfer.Header, *kv.Lease) {
	r.t.Helper()
	l, err := r.srcArena.Alloc(n, room.String())
	if err != nil {
		r.t.Fatal(err)
	}
	fill(l.Bytes(), uint64(room)<<32|uint64(seq))
	h := transfer.Header{ChunkID: kv.ChunkID{Room: room, Gen: id.Generation(room) + 1000, Seq: seq, P0: int32(seq) * 256, P1: int32(seq+1) * 256, Layout: 7}, Bytes: n}
	h.Sum = kv.Checksum(h.ChunkID, l.Bytes())
	return h, l
}

func fill(b []byte, seed uint64) {
	g := rand.New(rand.NewPCG(seed, 1))
	for len(b) >= 8 {
		v := g.Uint64()
		for i := range 8 {
			b[i] = byte(v >> (8 * i))
		}
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(g.Uint32())
	}
}

// publish publishes, or gives the lease back and returns why not.
func (r *rig) publish(h transfer.Header, l *kv.Lease) error {
	r.mu.Lock()
	r.published[h.ChunkID]++ // before: it may settle before Publish returns
	r.mu.Unlock()
	err := r.src.Publish(r.snkID, h, l)
	if err != nil {
		r.mu.Lock()
		r.published[h.ChunkID]--
		r.mu.Unlock()
		l.Release()
	}
	return err
}

func (r *rig) mustPublish(room id.Room, seq uint32, n int) transfer.Header {
	r.t.Helper()
	h, l := r.chunk(room, seq, n)
	if err := r.publish(h, l); err != nil {
		r.t.Fatalf("Publish: %v", err)
	}
	return h
}

// outcome is how a chunk was settled; under mu.
func (r *rig) outcome(h transfer.Header) (error, bool) {
	e := r.settled[h.ChunkID]
	if len(e) == 0 {
		return nil, false
	}
	return e[0], true
}

func (r *rig) waitSettled(h transfer.Header, want error) {
	r.t.Helper()
	r.wait(fmt.Sprintf("chunk %d of room %v settled", h.Seq, h.Room), func() bool { _, ok := r.outcome(h); return ok })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got, _ := r.outcome(h); !errors.Is(got, want) || (want == nil) != (got == nil) {
		r.t.Errorf("chunk %d of room %v settled with %v, want %v", h.Seq, h.Room, got, want)
	}
}

func (r *rig) set(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// freeze makes the sink's reader stop at the next chunk.
func (r *rig) freeze() { r.set(func() { r.gate = make(chan struct{}) }) }

func (r *rig) thaw() {
	r.set(func() {
		if r.gate != nil {
			close(r.gate)
			r.gate = nil
		}
	})
}

func (r *rig) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

type sourceSide struct{ r *rig }

func (s sourceSide) Settled(peer id.Incarnation, h transfer.Header, err error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if peer != r.snkID {
		r.fault("Settled for peer %v", peer)
	}
	if r.downs >= r.ups {
		r.fault("chunk %d of room %v settled outside of a link", h.Seq, h.Room)
	}
	r.settled[h.ChunkID] = append(r.settled[h.ChunkID], err)
	r.cond.Broadcast()
}

func (s sourceSide) LinkUp(id.Incarnation) {
	s.r.set(func() { s.r.ups++ })
	s.r.cond.Broadcast()
}

func (s sourceSide) LinkDown(_ id.Incarnation, err error) {
	s.r.set(func() { s.r.downs++ })
	s.r.cond.Broadcast()
}

type sinkSide struct{ r *rig }

func (s sinkSide) Accept(peer id.Incarnation, h transfer.Header) *kv.Lease {
	r := s.r
	r.mu.Lock()
	gate, refuse := r.gate, r.refuse
	r.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if refuse != nil && refuse(h) {
		return nil
	}
	l, err := r.snkArena.Alloc(h.Bytes, h.Room.String())
	if err != nil {
		return nil
	}
	return l
}

func (s sinkSide) Arrived(peer id.Incarnation, h transfer.Header, l *kv.Lease, err error) {
	r := s.r
	if err == nil && kv.Checksum(h.ChunkID, l.Bytes()) != h.Sum {
		err = errors.New("checksum")
	}
	l.Release()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.cond.Broadcast()
	if err != nil {
		r.bad = append(r.bad, fmt.Sprintf("chunk %d of room %v: %v", h.Seq, h.Room, err))
		return
	}
	r.arrived = append(r.arrived, h)
	if r.hold {
		r.kept = append(r.kept, h)
		return
	}
	r.snk.Ack(peer, h)
}

func (s sinkSide) LinkDown(id.Incarnation, error) {
	s.r.set(func() { s.r.snkDowns++ })
	s.r.cond.Broadcast()
}
