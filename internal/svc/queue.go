package svc

import "time"

// QueueState is how long a queue is and how old its oldest entry.
type QueueState struct {
	Len    int
	Oldest time.Duration // 0 when empty
}

type queue struct {
	name string
	read func() QueueState
}

// QueueStatus is one queue as health and metrics see it.
type QueueStatus struct {
	Name   string        `json:"name"`
	Len    int           `json:"len"`
	Oldest time.Duration `json:"oldest_ns"`
}

// Queue registers a queue under a name. read must not block for long: health
// calls it.
func (g *Group) Queue(name string, read func() QueueState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queues = append(g.queues, &queue{name: name, read: read})
}

// Queues returns the state of every registered queue.
func (g *Group) Queues() []QueueStatus {
	g.mu.Lock()
	queues := append([]*queue(nil), g.queues...)
	g.mu.Unlock()
	out := make([]QueueStatus, 0, len(queues))
	for _, q := range queues {
		s := q.read()
		out = append(out, QueueStatus{Name: q.name, Len: s.Len, Oldest: s.Oldest})
	}
	return out
}
