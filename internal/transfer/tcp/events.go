package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/svc"
	"github.com/tandem-llm/tandem/internal/transfer"
)

type eventKind uint8

const (
	settled eventKind = iota
	linkUp
	linkDown
)

type event struct {
	kind eventKind
	peer id.Incarnation
	h    transfer.Header
	err  error
}

// events brings a source's news to its handler, in order, from one goroutine:
// never from a caller's, who may hold locks, and never from a writer's, which
// may be blocked. What waits is bounded by what was published and not settled.
type events struct {
	mu   sync.Mutex
	list []event
	wake chan struct{}
}

func newEvents() *events { return &events{wake: make(chan struct{}, 1)} }

func (e *events) post(evs ...event) {
	if len(evs) == 0 {
		return
	}
	e.mu.Lock()
	e.list = append(e.list, evs...)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends and nothing is left.
func (e *events) run(ctx context.Context, l *svc.Loop, log *slog.Logger, h transfer.SourceHandler) error {
	for {
		e.mu.Lock()
		list := e.list
		e.list = nil
		e.mu.Unlock()
		for _, ev := range list {
			deliver(log, h, ev)
			l.Progress()
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			e.mu.Lock()
			left := len(e.list)
			e.mu.Unlock()
			if left == 0 {
				return nil
			}
		}
	}
}

func deliver(log *slog.Logger, h transfer.SourceHandler, ev event) {
	defer recovered(log, "source handler")
	switch ev.kind {
	case settled:
		h.Settled(ev.peer, ev.h, ev.err)
	case linkUp:
		h.LinkUp(ev.peer)
	case linkDown:
		h.LinkDown(ev.peer, ev.err)
	}
}

// recovered recovers a panic of the handler: it costs that one call.
func recovered(log *slog.Logger, where string) {
	if v := recover(); v != nil {
		log.Error("panic in the "+where, "value", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}
