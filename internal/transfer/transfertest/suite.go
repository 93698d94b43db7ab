package transfertest

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// Run shows that a transport keeps the contract. Every test ends by checking
// that each accepted Publish was settled exactly once, that all leases are
// back, and that goroutines and descriptors are where they were.
func Run(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		fn   func(*testing.T, *rig)
	}{
		{"contents of every size arrive unchanged", contents},
		{"chunks of several rooms interleave", interleave},
		{"a sink that does not acknowledge is pressed back on", backPressure},
		{"a chunk nobody wants is discarded and acknowledged", discard},
		{"acknowledgements may come in any order, and twice", acksOutOfOrder},
		{"an acknowledgement of nothing changes nothing", ackOfNothing},
		{"cancel before writing settles at once", cancelBefore},
		{"cancel after writing settles within the lease, acknowledged or not", cancelAfter},
		{"publish without a link leaves the lease with the caller", noLink},
		{"a source that ends settles everything, and the sink hears of it", sourceDies},
		{"a sink that ends settles everything, and the source hears of it", sinkDies},
		{"a frozen sink is fenced and the memory is free at once", frozenSink},
		{"a link closed by the sink can be opened again with a new ticket", reopen},
		{"a new link takes the place of the old one", replaceLink},
		{"a wrong, a used, a void and a foreign ticket are refused", tickets},
		{"a fence voids the ticket", fencedTicket},
		{"open ends with its context", openEnds},
		{"garbage on the listener harms nothing", garbage},
	} {
		t.Run(c.name, func(t *testing.T) { c.fn(t, newRig(t, f)) })
	}
}

var sizes = []int{0, 1, 4095, 4096, 4097, 12345, 1 << 20, 8 << 20, 12<<20 + 3}

func contents(t *testing.T, r *rig) {
	r.connect()
	for i, n := range sizes {
		r.waitSettled(r.mustPublish(1, uint32(i), n), nil)
	}
	r.set(func() {
		if len(r.arrived) != len(sizes) || len(r.bad) != 0 {
			t.Errorf("%d of %d arrived, bad: %v", len(r.arrived), len(sizes), r.bad)
		}
		for i, h := range r.arrived {
			if h.Bytes != sizes[i] || h.Seq != uint32(i) || h.P1 != h.P0+256 || h.Layout != 7 {
				t.Errorf("header %d is %+v", i, h)
			}
		}
	})
	st, sk := r.src.Stats(), r.snk.Stats()
	if st.Chunks != uint64(len(sizes)) || sk.Chunks != st.Chunks || st.Bytes != sk.Bytes || st.Links != 1 || st.Queued != 0 || st.Held != 0 {
		t.Errorf("stats: source %+v, sink %+v", st, sk)
	}
}

func interleave(t *testing.T, r *rig) {
	r.connect()
	const rooms, chunks = 5, 40
	for seq := range uint32(chunks) {
		for room := id.Room(1); room <= rooms; room++ {
			n := int(seq*uint32(room)*977) % (64 << 10)
			for {
				h, l := r.chunk(room, seq, n)
				h.Last = seq == chunks-1
				err := r.publish(h, l)
				if err == nil {
					break
				}
				if !errors.Is(err, transfer.ErrFull) {
					t.Fatal(err)
				}
				r.wait("room in the queue", func() bool { return r.open() < maxQueued })
			}
		}
	}
	r.wait("all settled", func() bool { return len(r.settled) == rooms*chunks })
	next := map[id.Room]uint32{}
	r.set(func() {
		for _, h := range r.arrived {
			if h.Seq != next[h.Room] || h.Last != (h.Seq == chunks-1) {
				t.Errorf("room %v: chunk %d (last %v) where %d was due", h.Room, h.Seq, h.Last, next[h.Room])
			}
			next[h.Room]++
		}
		if len(r.bad) > 0 {
			t.Errorf("bad: %v", r.bad)
		}
	})
}

// open counts what is published and not settled; under mu.
func (r *rig) open() int {
	n := 0
	for id, k := range r.published {
		n += k - len(r.settled[id])
	}
	return n
}

func backPressure(t *testing.T, r *rig) {
	r.connect()
	r.set(func() { r.hold = true })
	var first []transfer.Header
	for seq := range uint32(maxQueued) {
		first = append(first, r.mustPublish(1, seq, 1000))
	}
	h, l := r.chunk(1, maxQueued, 1000)
	if err := r.publish(h, l); !errors.Is(err, transfer.ErrFull) {
		t.Fatalf("chunk %d of at most %d: %v", maxQueued+1, maxQueued, err)
	}
	r.wait("all arrived", func() bool { return len(r.arrived) == maxQueued })
	if st := r.src.Stats(); st.Queued != maxQueued || st.Held != maxQueued*1000 {
		t.Errorf("stats %+v", st)
	}
	r.ackKept()
	for _, h := range first {
		r.waitSettled(h, nil)
	}
	r.waitSettled(r.mustPublish(1, maxQueued, 1000), nil)
}

// ackKept acknowledges, from the last to the first, what was held back.
func (r *rig) ackKept() {
	r.mu.Lock()
	kept := r.kept
	r.kept, r.hold = nil, false
	r.mu.Unlock()
	for i := len(kept) - 1; i >= 0; i-- {
		r.snk.Ack(r.srcID, kept[i])
	}
}

func discard(t *testing.T, r *rig) {
	r.connect()
	r.set(func() { r.refuse = func(h transfer.Header) bool { return h.Room == 2 } })
	for seq := range uint32(6) {
		r.waitSettled(r.mustPublish(2, seq, sizes[seq+2]), nil)
		r.waitSettled(r.mustPublish(1, seq, 1000), nil)
	}
	r.set(func() {
		if len(r.arrived) != 6 || len(r.bad) > 0 {
			t.Errorf("%d arrived, bad %v", len(r.arrived), r.bad)
		}
	})
	if st := r.snk.Stats(); st.Discarded != 6 {
		t.Errorf("sink %+v", st)
	}
}

func acksOutOfOrder(t *testing.T, r *rig) {
	r.connect()
	r.set(func() { r.hold = true })
	var hs []transfer.Header
	for seq := range uint32(5) {
		hs = append(hs, r.mustPublish(1, seq, 5000))
	}
	r.wait("all arrived", func() bool { return len(r.arrived) == 5 })
	for _, i := range []int{3, 3, 0, 4} {
		r.snk.Ack(r.srcID, hs[i])
	}
	for _, i := range []int{3, 0, 4} {
		r.waitSettled(hs[i], nil)
	}
	r.set(func() {
		if len(r.settled) != 3 {
			t.Errorf("%d settled, 3 acknowledged", len(r.settled))
		}
	})
	r.snk.Ack(r.srcID, hs[1])
	r.snk.Ack(r.srcID, hs[2])
	r.waitSettled(hs[1], nil)
	r.waitSettled(hs[2], nil)
}

func ackOfNothing(t *testing.T, r *rig) {
	r.connect()
	h := r.mustPublish(1, 0, 10)
	r.waitSettled(h, nil)
	r.snk.Ack(r.srcID, h)
	h.Room = 99
	r.snk.Ack(r.srcID, h)
	r.snk.Ack(id.NewIncarnation(), h)
	r.waitSettled(r.mustPublish(1, 1, 10), nil)
}

func cancelBefore(t *testing.T, r *rig) {
	r.connect()
	r.freeze()
	r.mustPublish(1, 0, 12<<20) // takes the whole way, and stands in it
	var queued []transfer.Header
	for seq := range uint32(3) {
		queued = append(queued, r.mustPublish(2, seq, 4<<20))
	}
	other := r.mustPublish(3, 0, 1000)
	h, l := r.chunk(2, 9, 1000) // the same room, another generation: not meant
	h.Gen++
	h.Sum = kv.Checksum(h.ChunkID, l.Bytes())
	if err := r.publish(h, l); err != nil {
		t.Fatal(err)
	}
	r.src.Cancel(r.snkID, 2, queued[0].Gen)
	for _, h := range queued[1:] { // the first of them may be on its way
		r.waitSettled(h, transfer.ErrCanceled)
	}
	r.thaw()
	r.waitSettled(other, nil)
	r.waitSettled(h, nil)
	r.wait("the first one settled", func() bool { _, ok := r.outcome(queued[0]); return ok })
}

func cancelAfter(t *testing.T, r *rig) {
	r.connect()
	r.set(func() { r.hold = true })
	h := r.mustPublish(1, 0, 100_000)
	r.wait("arrival", func() bool { return len(r.arrived) == 1 })
	began := time.Now()
	r.src.Cancel(r.snkID, h.Room, h.Gen)
	r.waitSettled(h, transfer.ErrCanceled)
	if took := time.Since(began); took > transfer.Lease+time.Second {
		t.Errorf("settled after %v", took)
	}
	r.ackKept() // too late, and harmless
}

func noLink(t *testing.T, r *rig) {
	h, l := r.chunk(1, 0, 10)
	if err := r.publish(h, l); !errors.Is(err, transfer.ErrNoLink) {
		t.Errorf("Publish: %v", err)
	}
	r.src.Cancel(r.snkID, 1, h.Gen) // harmless
	r.src.Fence(r.snkID)
	r.snk.Close(r.srcID)
}

func (r *rig) hang(t *testing.T) []transfer.Header {
	t.Helper()
	r.connect()
	r.set(func() { r.hold = true })
	hs := []transfer.Header{r.mustPublish(1, 0, 100)}
	r.wait("arrival", func() bool { return len(r.arrived) == 1 })
	r.freeze()
	for seq := range uint32(4) {
		hs = append(hs, r.mustPublish(1, seq+1, 5<<20))
	}
	return hs
}

func sourceDies(t *testing.T, r *rig) {
	hs := r.hang(t)
	r.thaw()
	r.stopSrc()
	<-r.srcDone
	r.set(func() {
		for _, h := range hs {
			if err, ok := r.outcome(h); !ok || !errors.Is(err, transfer.ErrFenced) {
				t.Errorf("chunk %d: %v, settled %v", h.Seq, err, ok)
			}
		}
	})
	r.wait("LinkDown at the sink", func() bool { return r.snkDowns == 1 })
	h, l := r.chunk(9, 0, 10)
	if err := r.publish(h, l); err == nil {
		t.Error("Publish after the end succeeded")
	}
}

func sinkDies(t *testing.T, r *rig) {
	hs := r.hang(t)
	r.thaw()
	r.stopSnk()
	<-r.snkDone
	for _, h := range hs {
		r.waitSettled(h, transfer.ErrLinkDown)
	}
	r.wait("LinkDown", func() bool { return r.downs == 1 && r.snkDowns == 1 })
	h, l := r.chunk(9, 0, 10)
	if err := r.publish(h, l); !errors.Is(err, transfer.ErrNoLink) {
		t.Errorf("Publish to a sink that ended: %v", err)
	}
}

func frozenSink(t *testing.T, r *rig) {
	hs := r.hang(t)
	began := time.Now()
	r.src.Fence(r.snkID)
	for _, h := range hs {
		r.waitSettled(h, transfer.ErrFenced)
	}
	if st := r.srcArena.Stats(); st.Leases != 0 {
		t.Errorf("leases after the fence: %+v", st)
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("the fence took %v", d)
	}
	r.wait("LinkDown", func() bool { return r.downs == 1 })
}

func reopen(t *testing.T, r *rig) {
	for i := range 5 {
		r.connect()
		r.waitSettled(r.mustPublish(id.Room(i+1), 0, 1000), nil)
		r.snk.Close(r.srcID)
		r.wait("LinkDown on both sides", func() bool { return r.downs == i+1 && r.snkDowns == i+1 })
	}
}

func replaceLink(t *testing.T, r *rig) {
	r.connect()
	r.set(func() { r.hold = true })
	h := r.mustPublish(1, 0, 1000)
	r.wait("arrival", func() bool { return len(r.arrived) == 1 })
	r.connect()
	r.waitSettled(h, transfer.ErrLinkDown)
	r.set(func() { r.hold = false })
	r.waitSettled(r.mustPublish(2, 0, 1000), nil)
	r.set(func() {
		if r.downs != 1 || r.snkDowns != 1 {
			t.Errorf("LinkDown: source %d, sink %d", r.downs, r.snkDowns)
		}
	})
}

func (r *rig) refused(what string, t transfer.Ticket) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.snk.Open(ctx, r.srcID, r.src.Addr(), t); err == nil {
		r.t.Errorf("%s opened a link", what)
	}
}

func tickets(t *testing.T, r *rig) {
	r.refused("no ticket", transfer.Ticket{})
	void := r.src.Issue(r.snkID)
	good := r.src.Issue(r.snkID)
	r.refused("a void ticket", void)
	wrong := good
	wrong[31] ^= 1
	r.refused("a ticket with one bit changed", wrong)
	r.refused("another sink's ticket", r.src.Issue(id.NewIncarnation()))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.snk.Open(ctx, id.NewIncarnation(), r.src.Addr(), good); err == nil {
		t.Error("a ticket opened a link to another source")
	}
	if err := r.snk.Open(ctx, r.srcID, r.src.Addr(), good); err != nil {
		t.Errorf("the good ticket after all those: %v", err)
	}
	r.wait("LinkUp", func() bool { return r.ups == 1 })
	r.snk.Close(r.srcID)
	r.wait("LinkDown", func() bool { return r.downs == 1 })
	r.refused("a used ticket", good)
	if st := r.src.Stats(); st.Refused < 6 {
		t.Errorf("source counted %+v", st)
	}
}

func fencedTicket(t *testing.T, r *rig) {
	ticket := r.src.Issue(r.snkID)
	r.src.Fence(r.snkID)
	r.refused("a ticket from before the fence", ticket)
	r.connect()
}

func openEnds(t *testing.T, r *rig) {
	lis, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.snk.Open(ctx, r.srcID, lis.Addr().String(), transfer.Ticket{}); err == nil {
		t.Error("Open succeeded")
	}
}

func garbage(t *testing.T, r *rig) {
	r.connect()
	noise := make([]byte, 1<<20)
	rand.Read(noise)
	for i, b := range [][]byte{nil, {0}, []byte("GET / HTTP/1.1\r\n\r\n"), {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, noise} {
		c, err := net.Dial(r.f.Network, r.src.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		c.Write(b)
		r.waitSettled(r.mustPublish(1, uint32(i), 1000), nil)
		c.Close()
	}
	var conns []net.Conn
	for range 200 {
		if c, err := net.Dial(r.f.Network, r.src.Addr()); err == nil {
			conns = append(conns, c)
		}
	}
	r.waitSettled(r.mustPublish(2, 0, 1000), nil)
	soon := time.Now().Add(time.Second)
	var waiting atomic.Int32
	var wg sync.WaitGroup
	for _, c := range conns { // one that was turned away is closed, and needs no second
		wg.Go(func() {
			defer c.Close()
			c.SetReadDeadline(soon)
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				waiting.Add(1)
			}
		})
	}
	wg.Wait()
	if n := waiting.Load(); n > 64 {
		t.Errorf("%d connections without a ticket are kept, at most 64", n)
	}
}
