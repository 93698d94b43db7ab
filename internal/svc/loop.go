package svc

import (
	"sync"
	"sync/atomic"
	"time"
)

// Loop is a running loop's pulse. Its owner calls Beat when it goes round and
// Progress when it got something done; anybody may read it.
type Loop struct {
	name     string
	beat     atomic.Int64 // unix ns of the last Beat
	progress atomic.Uint64
	restarts atomic.Int32
	ended    atomic.Bool
	mu       sync.Mutex
	err      error
}

// Beat says that the loop goes round.
func (l *Loop) Beat() { l.beat.Store(time.Now().UnixNano()) }

// Progress says that the loop got something done; it also beats.
func (l *Loop) Progress() {
	l.progress.Add(1)
	l.Beat()
}

func (l *Loop) fail(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
}

// LoopStatus is one loop as health and /debug/loops see it.
type LoopStatus struct {
	Name     string    `json:"name"`
	Beat     time.Time `json:"beat"`
	Progress uint64    `json:"progress"`
	Restarts int       `json:"restarts"`
	Ended    bool      `json:"ended"`
	Err      string    `json:"err,omitempty"` // why a loop is dead
}

// Loops returns the status of every loop started in the group.
func (g *Group) Loops() []LoopStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]LoopStatus, 0, len(g.loops))
	for _, l := range g.loops {
		s := LoopStatus{
			Name:     l.name,
			Beat:     time.Unix(0, l.beat.Load()),
			Progress: l.progress.Load(),
			Restarts: int(l.restarts.Load()),
			Ended:    l.ended.Load(),
		}
		l.mu.Lock()
		if l.err != nil {
			s.Err = l.err.Error()
		}
		l.mu.Unlock()
		out = append(out, s)
	}
	return out
}

// Tasks returns how many tasks of each name run now.
func (g *Group) Tasks() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[string]int, len(g.tasks))
	for name, n := range g.tasks {
		out[name] = int(n.Load())
	}
	return out
}
