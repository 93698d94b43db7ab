package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// WatchPeriod is how often the watched connections are looked at. It is a fraction of
// the second in which a departed client's memory is free again.
const WatchPeriod = 250 * time.Millisecond

// ErrClientGone is the cause with which Watch ends a context. It is no room.Cause: whose
// connection it was, a client's or the router's, only the handler knows.
var ErrClientGone = errors.New("the peer closed its connection")

// Watch returns a child of ctx that also ends, with ErrClientGone, when the peer of r's
// connection leaves, by FIN or RST; a half-close counts as leaving. Start it after the
// body was read and call stop when the handler is done.
//
// net/http watches too, but by reading: it stops at the first byte that follows the
// request, and then r.Context never ends. This watch reads nothing. Connections that
// are not plain TCP of a server of NewServer's have only net/http's.
func Watch(ctx context.Context, r *http.Request) (watched context.Context, stop context.CancelFunc) {
	c, ok := r.Context().Value(connKey{}).(*connection)
	if !ok {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{raw: c.raw, cancel: cancel}
	c.watcher.add(w)
	return ctx, func() {
		c.watcher.remove(w)
		cancel(nil)
	}
}

type connKey struct{}

// connection is what ConnContext keeps of a connection.
type connection struct {
	raw     syscall.RawConn
	watcher *watcher
}

// watch is one handler's wish to know.
type watch struct {
	raw    syscall.RawConn
	cancel context.CancelCauseFunc
}

// watcher looks at all watched connections of one server in one round. A timer drives
// it that is armed while there is something to watch: nobody has to start or stop it.
type watcher struct {
	mu      sync.Mutex
	watches map[*watch]struct{}
	armed   bool

	round []*watch // the round's own: there is never a second one
	poll  poller
}

func newWatcher() *watcher { return &watcher{watches: map[*watch]struct{}{}} }

// keep remembers a connection that can be watched.
func (w *watcher) keep(ctx context.Context, c net.Conn) context.Context {
	tcp, ok := c.(*net.TCPConn)
	if !ok || !canWatch {
		return ctx
	}
	raw, err := tcp.SyscallConn()
	if err != nil { // closed already: its first read will tell
		return ctx
	}
	return context.WithValue(ctx, connKey{}, &connection{raw, w})
}

func (w *watcher) add(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches[x] = struct{}{}
	if !w.armed {
		w.armed = true
		time.AfterFunc(WatchPeriod, w.look)
	}
}

func (w *watcher) remove(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, x)
}

// look is one round. It cancels outside the lock: a handler may end at once and remove
// its watch.
func (w *watcher) look() {
	w.mu.Lock()
	for x := range w.watches {
		w.round = append(w.round, x)
	}
	w.mu.Unlock()
	w.poll.gone(w.round, func(x *watch) {
		w.remove(x)
		x.cancel(ErrClientGone)
	})
	clear(w.round)
	w.round = w.round[:0]
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed = len(w.watches) > 0; w.armed {
		time.AfterFunc(WatchPeriod, w.look)
	}
}
