package main

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

const (
	chunkTokens = 256
	lifeTokens  = 3*chunkTokens + 7 // of one room's prompt: four chunks
	chunkSize   = 1 << 20
	prefillInc  = id.Incarnation(1)
	decodeInc   = id.Incarnation(2)
)

// pairOfBooks is the room protocol of both workers, with a network and engines that
// cost nothing: what remains is the protocol's own cost.
type pairOfBooks struct {
	p, d *room.Book
	now  room.Mono
	gen  id.Generation
}

func newBooks(rooms int) *pairOfBooks {
	l := room.Limits{Tombstones: max(room.DefaultTombstones, 2*rooms)} // as many as a worker remembers
	return &pairOfBooks{p: room.New(room.Prefill, chunkTokens, l), d: room.New(room.Decode, chunkTokens, l)}
}

func (b *pairOfBooks) leg(r id.Room) room.Leg {
	return room.Leg{Room: r, RID: id.RID(r.String()), Tokens: lifeTokens, Window: 2 * chunkSize, Deadline: b.now.After(time.Hour)}
}

// open brings a room to Transferring on both sides: what a live room is.
func (b *pairOfBooks) open(r id.Room) {
	b.gen++
	b.p.LegArrived(b.now, b.leg(r))
	b.d.LegArrived(b.now, b.leg(r))
	b.p.Admitted(b.now, r, 0)
	b.d.Admitted(b.now, r, 0)
	b.toPrefill(b.d.PeerUp(b.now, r, prefillInc, b.gen))
}

// toPrefill delivers decode's messages, and then what prefill says to them.
func (b *pairOfBooks) toPrefill(fx []room.Effect) {
	for _, e := range fx {
		if s, ok := e.(room.Send); ok {
			b.toDecode(b.p.Message(b.now, decodeInc, s.Msg))
		}
	}
}

func (b *pairOfBooks) toDecode(fx []room.Effect) {
	for _, e := range fx {
		switch e := e.(type) {
		case room.Send:
			b.toPrefill(b.d.Message(b.now, prefillInc, e.Msg))
		case room.Publish:
			b.chunk(e)
		}
	}
}

// chunk moves one published chunk, imports it and acknowledges it.
func (b *pairOfBooks) chunk(e room.Publish) {
	p0 := int32(e.Index) * chunkTokens
	p1 := min(p0+chunkTokens, lifeTokens-1)
	_, fx := b.d.Chunk(b.now, prefillInc, e.Gen, e.Room, e.Seq, p0, p1, chunkSize, p1 == lifeTokens-1)
	b.toPrefill(fx)
	b.toPrefill(b.d.Imported(b.now, e.Room, e.Gen, chunkSize, uint64(e.Index+1)))
	b.toDecode(b.p.Settled(b.now, e.Room, e.Gen, chunkSize, nil))
}

// finish hands an open room over and forgets its memory.
func (b *pairOfBooks) finish(r id.Room) {
	for p0 := int32(0); p0 < lifeTokens-1; p0 += chunkTokens {
		b.toDecode(b.p.Exported(b.now, r, chunkSize, uint64(p0/chunkTokens+1), p0+chunkTokens >= lifeTokens-1))
	}
	b.free(r)
}

// abort ends an open room as a client that left does.
func (b *pairOfBooks) abort(r id.Room) {
	b.toPrefill(b.d.Abort(b.now, id.RID(r.String()), r, room.Because(room.ClientGone, "left")))
	b.free(r)
}

func (b *pairOfBooks) free(r id.Room) {
	b.toDecode(b.p.Freed(b.now, r))
	b.toPrefill(b.d.Freed(b.now, r))
}

// roomCost is what the protocol costs beside so many live rooms.
type roomCost struct {
	Live          int     `json:"live_rooms"`
	BytesLive     float64 `json:"bytes_per_live_room"`
	Handover      float64 `json:"handover_us"` // both sides, four chunks
	HandoverAlloc int64   `json:"handover_allocations"`
	HandoverBytes int64   `json:"handover_bytes"`
	Abort         float64 `json:"abort_us"` // opened and aborted, both sides
	AbortAlloc    int64   `json:"abort_allocations"`
	AbortBytes    int64   `json:"abort_bytes"`
}

func measureRooms(live int) (roomCost, error) {
	c := roomCost{Live: live}
	before := heap()
	b := newBooks(live)
	for r := range id.Room(live) {
		b.open(r + 1)
	}
	c.BytesLive = float64(heap()-before) / float64(live)
	for _, book := range []*room.Book{b.p, b.d} {
		if n := book.Counts(room.Transferring) + book.Counts(room.WaitingForInput); n != live {
			return c, fmt.Errorf("%d rooms are open, not %d", n, live)
		}
	}
	next := id.Room(live + 1)
	for range 2 * max(room.DefaultTombstones, live) { // a worker at work remembers as many ended rooms as it may
		b.open(next)
		b.finish(next)
		next++
	}
	lives := func(end func(id.Room)) testing.BenchmarkResult {
		return testing.Benchmark(func(t *testing.B) {
			t.ReportAllocs()
			for range t.N {
				b.open(next)
				end(next)
				next++
			}
		})
	}
	h, a := lives(b.finish), lives(b.abort)
	c.Handover, c.HandoverAlloc, c.HandoverBytes = float64(h.NsPerOp())/1e3, h.AllocsPerOp(), h.AllocedBytesPerOp()
	c.Abort, c.AbortAlloc, c.AbortBytes = float64(a.NsPerOp())/1e3, a.AllocsPerOp(), a.AllocedBytesPerOp()
	for side, book := range []*room.Book{b.p, b.d} {
		if n := book.Impossible(); n > 0 {
			return c, fmt.Errorf("side %d met %d impossible events: this measures something else", side, n)
		}
		if s := book.Get(next - 1); s != nil && s.State.Live() {
			return c, fmt.Errorf("side %d: the last room ended as %v", side, s.State)
		}
	}
	runtime.KeepAlive(b)
	return c, nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
