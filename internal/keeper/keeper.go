package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

// idle is how long the sweeper sleeps when no room has a deadline.
const idle = time.Second

// Keeper owns a Book.
type Keeper struct {
	perform func(room.Effect)
	base    time.Time
	wake    chan struct{}

	mu     sync.Mutex
	book   *room.Book
	todo   []room.Effect
	active bool // somebody performs
	armed  room.Mono
}

// New returns a keeper of the book, which nobody else may touch from now on.
func New(book *room.Book, perform func(room.Effect)) *Keeper {
	return &Keeper{perform: perform, base: time.Now(), wake: make(chan struct{}, 1), book: book}
}

// Mono returns a wall-clock moment on the book's own clock.
func (k *Keeper) Mono(t time.Time) room.Mono { return room.Mono(t.Sub(k.base)) }

// Do applies one event and sees to it that its effects are performed, after all
// that came before. They may still be to come when Do returns, if another
// goroutine is performing. f runs under the lock and must not call the keeper.
func (k *Keeper) Do(f func(b *room.Book, now room.Mono) []room.Effect) {
	k.mu.Lock()
	k.todo = append(k.todo, f(k.book, k.Mono(time.Now()))...)
	if at, ok := k.book.Next(); ok && (k.armed == 0 || at < k.armed) {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	if k.active {
		k.mu.Unlock()
		return
	}
	k.active = true
	defer func() {
		k.active = false
		k.mu.Unlock()
	}()
	for len(k.todo) > 0 {
		e := k.todo[0]
		k.todo[0] = nil
		k.todo = k.todo[1:]
		k.unlocked(e)
	}
	k.todo = nil
}

// unlocked performs one effect without the lock, and takes it again even if the
// performer panics.
func (k *Keeper) unlocked(e room.Effect) {
	k.mu.Unlock()
	defer k.mu.Lock()
	k.perform(e)
}

// Look reads the book under the lock.
func (k *Keeper) Look(f func(b *room.Book)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(k.book)
}

// Sweep runs the book's deadlines on their own clock until ctx ends.
func (k *Keeper) Sweep(ctx context.Context, l *svc.Loop) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			k.Do((*room.Book).Sweep)
			l.Progress()
		case <-k.wake:
		}
		l.Beat()
		timer.Reset(k.untilNext())
	}
}

// untilNext returns how long the sweeper may sleep, and remembers it so that Do
// wakes it for anything earlier.
func (k *Keeper) untilNext() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Mono(time.Now())
	next := now.After(idle)
	if at, ok := k.book.Next(); ok && at < next {
		next = at
	}
	k.armed = next
	return max(next.Sub(now), 0)
}
