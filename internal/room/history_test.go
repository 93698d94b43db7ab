package room

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/id"
)

const testRooms = 3

// TestEveryHistoryEndsEveryRoomOnce plays random histories with loss,
// duplication, reordering, restarts, aborts before, during and after a room, and
// then heals: every leg must have exactly one ending, and nothing may be held.
func TestEveryHistoryEndsEveryRoomOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		tokens := map[id.Room]int32{}
		for r := id.Room(1); r <= testRooms; r++ {
			tokens[r] = int32(rapid.IntRange(1, 14).Draw(rt, "tokens"))
		}
		legsP, legsD := map[id.Room]bool{}, map[id.Room]bool{}
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			chaosStep(rt, w, tokens, legsP, legsD)
			check(rt, w)
		}
		heal(w)
		check(rt, w)
		mustBeQuiet(rt, w, legsP, legsD)
	})
}

func chaosStep(rt *rapid.T, w *world, tokens map[id.Room]int32, legsP, legsD map[id.Room]bool) {
	room := id.Room(rapid.IntRange(1, testRooms).Draw(rt, "room"))
	digest := byte(0)
	switch k := rapid.IntRange(0, 19).Draw(rt, "do"); k {
	case 0, 1:
		legsP[room] = true
		w.p.leg(room, tokens[room], 0, w.now.After(60*time.Second))
	case 2, 3:
		legsD[room] = true
		if rapid.IntRange(0, 9).Draw(rt, "mismatch") == 0 {
			digest = 1
		}
		if w.d.book.Get(room) == nil {
			w.d.have[room] = testChunk * int32(rapid.IntRange(0, max(0, int(tokens[room]-2)/testChunk)).Draw(rt, "have"))
		}
		w.d.leg(room, tokens[room], digest, w.now.After(60*time.Second))
	case 4:
		w.p.admit(room)
	case 5:
		w.d.admit(room)
	case 6, 7:
		w.p.compute(room)
	case 8:
		w.sessionUp(room)
	case 9, 10, 11:
		deliver(rt, &w.toP, w.deliverToP)
		deliver(rt, &w.toD, w.deliverToD)
	case 12, 13:
		if len(w.chunks) > 0 {
			w.deliverChunk()
		}
	case 14:
		if len(w.acks) > 0 {
			w.deliverAck()
		}
	case 15:
		n := w.p
		if rapid.Bool().Draw(rt, "decode") {
			n = w.d
		}
		n.perform(n.book.Abort(w.now, id.RID(room.String()), 0, Because(ClientGone, "test")))
	case 16:
		w.advance(w.now.After(time.Duration(rapid.IntRange(1, 4000).Draw(rt, "ms")) * time.Millisecond))
	case 17:
		n := w.p
		if rapid.Bool().Draw(rt, "decode") {
			n = w.d
		}
		if r := n.book.Get(room); r != nil && r.State.Live() {
			n.perform(n.book.Fail(w.now, room, Because(EngineFailed, "test")))
		}
	case 18:
		switch rapid.IntRange(0, 5).Draw(rt, "rare") {
		case 0:
			w.restart(Prefill)
			clear(legsP)
		case 1:
			w.restart(Decode)
			clear(legsD)
		case 2:
			w.cutData()
		case 3:
			w.p.perform(w.p.book.Drain(w.now))
		}
	case 19:
		w.p.free(room)
		w.d.free(room)
	}
}

// deliver delivers, loses, duplicates or keeps any one of the packets in flight.
func deliver(rt *rapid.T, q *[]packet, f func(int)) {
	if len(*q) == 0 {
		return
	}
	i := rapid.IntRange(0, len(*q)-1).Draw(rt, "packet")
	switch rapid.IntRange(0, 5).Draw(rt, "fate") {
	case 0:
		*q = append((*q)[:i:i], (*q)[i+1:]...)
	case 1:
		*q = append(*q, (*q)[i])
		f(i)
	default:
		f(i)
	}
}

// heal lets everything in flight arrive, then lets all deadlines pass.
func heal(w *world) {
	for range 40 {
		for range 20 {
			for r := id.Room(1); r <= testRooms; r++ {
				w.p.admit(r)
				w.d.admit(r)
				w.p.compute(r)
				w.sessionUp(r)
				w.p.free(r)
				w.d.free(r)
			}
			for len(w.toP) > 0 {
				w.deliverToP(0)
			}
			for len(w.toD) > 0 {
				w.deliverToD(0)
			}
			for len(w.chunks) > 0 {
				w.deliverChunk()
			}
			for len(w.acks) > 0 {
				w.deliverAck()
			}
		}
		w.advance(w.now.After(3 * time.Second))
	}
	// generation ends
	for r, j := range w.d.held {
		j.stopped = true
		w.d.free(r)
	}
}

func check(rt *rapid.T, w *world) {
	for _, v := range w.violations {
		rt.Fatal(v)
	}
	for _, n := range []*node{w.p, w.d} {
		if n.book.Impossible() != 0 {
			rt.Fatalf("%s reached a cell that the guards exclude: %v", n.side, n.book.Drops())
		}
		for room, causes := range n.answers {
			if len(causes) > 1 {
				rt.Fatalf("%s answered room %d %d times: %v", n.side, room, len(causes), causes)
			}
			if n.proceeds[room] > 0 {
				rt.Fatalf("%s: room %d both proceeded and was answered %v", n.side, room, causes[0])
			}
		}
		for room, times := range n.proceeds {
			if times > 1 {
				rt.Fatalf("room %d proceeded %d times", room, times)
			}
		}
	}
}

func mustBeQuiet(rt *rapid.T, w *world, legsP, legsD map[id.Room]bool) {
	for _, n := range []*node{w.p, w.d} {
		for s := Parked; s < numStates; s++ {
			if c := n.book.Counts(s); c != 0 {
				rt.Fatalf("%s still counts %d rooms in %s after everything healed and every deadline passed", n.side, c, s)
			}
		}
		if len(n.held) != 0 || len(n.queue) != 0 {
			rt.Fatalf("%s still holds %d rooms' resources and queues %d", n.side, len(n.held), len(n.queue))
		}
		legs := legsP
		if n.side == Decode {
			legs = legsD
		}
		for room := range legs {
			if len(n.answers[room])+n.proceeds[room] == 0 && n.refused[room] == 0 {
				rt.Fatalf("%s: the leg of room %d was never answered: %s", n.side, room, fmt.Sprint(n.book.Get(room)))
			}
		}
	}
}
