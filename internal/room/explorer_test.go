package room

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// explorer visits the states of a model breadth first, so that the first history
// found to break a law is a shortest one. A state is kept as 64 bits in a table,
// and as its last move and its parent in a list: to go on from it, its history is
// played again, from where it leaves that of the state before it.
type explorer struct {
	sc       *scope
	workers  int
	until    time.Time // zero: no bound
	maxSeen  int       // distinct states; 0: no bound
	maxDepth int       // moves; 0: no bound
	healAll  int       // to this depth every state is healed, then one in healOne; 0: every one everywhere
	progress func(result)

	seen   table
	graph  [][]step // by depth
	began  time.Time
	healed atomic.Int64
	moves  atomic.Int64
	mu     sync.Mutex
	bad    *violation
	depth  int  // moves to the deepest level that was expanded whole
	whole  bool // nothing was left to explore
}

// deepHeals and healOne bound what healing costs make explore.
const (
	deepHeals = 14
	healOne   = 4
)

// result is how far an exploration came.
type result struct {
	Scope                         string
	Depth                         int
	States, Frontier, Moves, Heal int64
	Whole                         bool
	Took                          time.Duration
}

// String is the line of make explore.
func (r result) String() string {
	return fmt.Sprintf("%-24s depth %2d  %10d distinct  %9d frontier  %7.0f distinct/s  %8.0f moves/s  %10d healed  %v", r.Scope, r.Depth, r.States, r.Frontier,
		float64(r.States)/r.Took.Seconds(), float64(r.Moves)/r.Took.Seconds(), r.Heal, r.Took.Round(time.Second))
}

func (x *explorer) result() result {
	return result{Scope: x.sc.name, Depth: x.depth, States: x.seen.n.Load(), Frontier: int64(len(x.graph[len(x.graph)-1])), Moves: x.moves.Load(),
		Heal: x.healed.Load(), Whole: x.whole, Took: time.Since(x.began)}
}

// step is a state: how it was reached.
type step struct {
	parent uint32
	move   uint32
}

// violation is a broken law, and the state before it.
type violation struct {
	depth  int
	parent uint32
	move   move // that broke a law, or led to the state that does not heal
	what   string
}

const shards = 256

// table is a set of digests.
type table struct {
	shard [shards]struct {
		sync.Mutex
		m map[hash]struct{}
	}
	n atomic.Int64
}

func (t *table) add(h hash) bool {
	s := &t.shard[h%shards]
	s.Lock()
	defer s.Unlock()
	if _, there := s.m[h]; there {
		return false
	}
	if s.m == nil {
		s.m = make(map[hash]struct{})
	}
	s.m[h] = struct{}{}
	t.n.Add(1)
	return true
}

// run explores until a law is broken, nothing is left, or a bound is reached.
func (x *explorer) run() {
	x.began = time.Now()
	x.seen.add(newModel(x.sc).hash())
	x.graph = [][]step{{{}}}
	for x.maxDepth == 0 || x.depth < x.maxDepth {
		next, all := x.level()
		x.graph = append(x.graph, next)
		if !all {
			return
		}
		if x.whole = len(next) == 0; x.whole {
			return
		}
		x.depth++
		if x.progress != nil {
			x.progress(x.result())
		}
	}
}

// level expands every state of the last level.
func (x *explorer) level() (next []step, all bool) {
	frontier := len(x.graph[x.depth])
	const batch = 256
	var at atomic.Int64
	all = true
	var wg sync.WaitGroup
	for range x.workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w := &walker{x: x, drops: map[string]uint64{}}
			var out []step
			for {
				from := int(at.Add(batch)) - batch
				if from >= frontier || x.stop() {
					break
				}
				for i := from; i < min(from+batch, frontier); i++ {
					out = w.expand(uint32(i), out)
				}
			}
			x.mu.Lock()
			next = append(next, out...)
			x.mu.Unlock()
		}()
	}
	wg.Wait()
	return next, !x.stop() && x.bad == nil
}

func (x *explorer) stop() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bad != nil || !x.until.IsZero() && time.Now().After(x.until) || x.maxSeen > 0 && int(x.seen.n.Load()) >= x.maxSeen
}

// walker plays histories for one goroutine.
type walker struct {
	x     *explorer
	drops map[string]uint64
	path  []uint32 // the state it is at, by depth
	chain []uint32 // the state it goes to
	model []*model
	todo  []move
}

// goTo plays the history of a state of the last level.
func (w *walker) goTo(i uint32) *model {
	d := w.x.depth
	if w.model == nil {
		w.model, w.path, w.chain = make([]*model, d+1), make([]uint32, d+1), make([]uint32, d+1)
		w.model[0] = newModel(w.x.sc)
	}
	chain := w.chain
	for k := d; k >= 0; k-- {
		chain[k] = i
		i = w.x.graph[k][i].parent
	}
	k := 0
	for k < d && w.model[k+1] != nil && w.path[k+1] == chain[k+1] {
		k++
	}
	for ; k < d; k++ {
		m := w.model[k].fork(w.drops)
		m.apply(unpack(w.x.graph[k+1][chain[k+1]].move))
		w.model[k+1], w.path[k+1] = m, chain[k+1]
	}
	return w.model[d]
}

// expand makes every move from a state, and asks of every new state whether it heals.
func (w *walker) expand(i uint32, out []step) []step {
	m := w.goTo(i)
	w.todo = m.moves(w.todo)
	for _, k := range w.todo {
		c := m.fork(w.drops)
		c.apply(k)
		w.x.moves.Add(1)
		if c.fault != "" {
			w.x.found(&violation{w.x.depth, i, k, c.fault})
			return out
		}
		h := c.hash()
		if !w.x.seen.add(h) {
			continue
		}
		out = append(out, step{i, k.pack()})
		if w.x.healAll == 0 || w.x.depth < w.x.healAll || h>>8%healOne == 0 {
			w.x.healed.Add(1)
			if what := c.heal(); what != "" {
				w.x.found(&violation{w.x.depth, i, k, "when it heals: " + what})
				return out
			}
		}
	}
	return out
}

func (x *explorer) found(v *violation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.bad == nil || v.parent < x.bad.parent {
		x.bad = v
	}
}

// history tells the history of a violation as sentences, and as moves that can
// be played again.
func (x *explorer) history(v *violation) string {
	ks := []move{v.move}
	for d, i := v.depth, v.parent; d > 0; d-- {
		ks = append([]move{unpack(x.graph[d][i].move)}, ks...)
		i = x.graph[d][i].parent
	}
	return fmt.Sprintf("%s\nafter %d moves in the scope %q:\n%s", v.what, len(ks), x.sc.name, narrate(x.sc, ks))
}

// narrate plays moves and says what happens.
func narrate(sc *scope, ks []move) string {
	var w strings.Builder
	m := newModel(sc)
	codes := make([]string, len(ks))
	for n, k := range ks {
		fmt.Fprintf(&w, "%3d. %s", n+1, m.sentence(k))
		m.apply(k)
		for _, e := range m.fx {
			if e, ok := e.(Moved); ok {
				fmt.Fprintf(&w, "; room %d: %s → %s", e.Room, e.From, e.To)
			}
		}
		w.WriteByte('\n')
		codes[n] = strconv.FormatUint(uint64(k.pack()), 36)
	}
	fmt.Fprintf(&w, "replay: SCOPE=%q REPLAY=%s go test ./internal/room -run AHistoryIsReplayed -v\n", sc.name, strings.Join(codes, "."))
	return w.String()
}
