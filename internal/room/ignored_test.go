package room

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/id"
)

// inState brings room 1 of three chunks into a state of one side, by what would bring
// it there, and returns that side and the hand-over's generation.
func inState(t *testing.T, side Side, s State) (w *world, n *node, gen id.Generation) {
	t.Helper()
	w = newWorld()
	legs := func(p, d bool) {
		if p {
			w.p.leg(room1, 10, 0, soon(w))
		}
		if d {
			w.d.leg(room1, 10, 0, soon(w))
		}
	}
	ready := func() {
		w.d.admit(room1)
		w.sessionUp(room1)
	}
	n = []*node{w.p, w.d}[side]
	switch {
	case s == Absent:
	case side == Prefill && s == Parked:
		w.p.perform(w.p.book.Message(w.now, w.d.inc, Message{Type: Abort, Room: room1, Cause: Cause{Code: ClientGone}}))
	case side == Prefill && s == Early:
		legs(false, true)
		ready()
		w.deliverToP(0)
	case side == Prefill && s == Bootstrapping:
		legs(true, false)
	case side == Prefill && s == Computing:
		legs(true, false)
		w.p.admit(room1)
	case side == Prefill && s == WaitingForInput:
		legs(true, true)
		ready()
		w.deliverToP(0)
	case side == Decode && s == Prealloc:
		legs(false, true)
	case side == Decode && s == Bootstrapping:
		legs(false, true)
		w.d.admit(room1)
	case side == Decode && s == WaitingForInput:
		paired(w, 10)
	default:
		paired(w, 10)
		w.p.compute(room1)
		if side == Decode {
			w.deliverChunk()
			w.deliverAck()
		}
		switch s {
		case Failed:
			n.perform(n.book.Fail(w.now, room1, Because(EngineFailed, "test")))
		case Success:
			for range 3 {
				w.p.compute(room1)
			}
			for len(w.chunks)+len(w.acks) > 0 {
				w.deliverChunk()
				w.deliverAck()
			}
			w.deliverToP(0)
		}
	}
	want(t, n, s)
	if r := n.book.Get(room1); r != nil {
		gen = r.Gen
	}
	return w, n, gen
}

// reasons lists why something was ignored, as the effects say and as it is counted.
func reasons(t *testing.T, b *Book, do func() []Effect) (all []string) {
	t.Helper()
	before := b.Drops()
	for _, e := range do() {
		if d, ok := e.(Drop); ok {
			all = append(all, d.Reason)
		}
	}
	after := b.Drops()
	for _, r := range all {
		if after[r] != before[r]+1 {
			t.Errorf("%q was said and not counted", r)
		}
	}
	return all
}

func is(s State, of ...State) bool { return slices.Contains(of, s) }

// TestWhatIsIgnoredIsCountedByItsReason: of a room that nobody knows, "unknown";
// of one that has ended, "late"; of another hand-over, "foreign".
func TestWhatIsIgnoredIsCountedByItsReason(t *testing.T) {
	const other = 4242
	for _, c := range []struct {
		what string
		side []Side
		do   func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect
		want func(side Side, s State) string
	}{
		{"a chunk is exported", []Side{Prefill}, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Exported(now, room1, chunkBytes, 1, false)
		}, func(_ Side, s State) string {
			switch {
			case is(s, Absent, Parked, Early):
				return "unknown"
			case is(s, Computing, Transferring):
				return ""
			}
			return "late"
		}},
		{"a chunk is settled", []Side{Prefill}, func(b *Book, now Mono, _ id.Incarnation, gen id.Generation) []Effect {
			return b.Settled(now, room1, gen, 0, nil)
		}, func(_ Side, s State) string {
			if is(s, Transferring, Success, Failed) {
				return ""
			}
			return "unknown"
		}},
		{"a chunk of another hand-over is settled", []Side{Prefill}, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Settled(now, room1, other, 0, nil)
		}, func(_ Side, s State) string {
			switch {
			case s.Live():
				return "foreign"
			case s.Terminal():
				return ""
			}
			return "unknown"
		}},
		{"a chunk is imported", []Side{Decode}, func(b *Book, now Mono, _ id.Incarnation, gen id.Generation) []Effect {
			return b.Imported(now, room1, gen, chunkBytes, 1)
		}, func(_ Side, s State) string {
			switch {
			case s.Terminal():
				return "late"
			case s == Transferring:
				return ""
			}
			return "unknown"
		}},
		{"a chunk of another hand-over is imported", []Side{Decode}, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Imported(now, room1, other, chunkBytes, 1)
		}, alwaysFor("foreign")},
		{"a chunk arrives", []Side{Decode}, func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect {
			r := b.known(room1)
			p0, p1, last := r.span(r.taken, testChunk)
			_, fx := b.Chunk(now, peer, gen, room1, r.taken, p0, p1, chunkBytes, last)
			return fx
		}, func(_ Side, s State) string {
			switch {
			case s.Terminal():
				return "late"
			case is(s, WaitingForInput, Transferring):
				return ""
			}
			return "foreign" // no hand-over has that generation yet
		}},
		{"a chunk of another worker arrives", []Side{Decode}, func(b *Book, now Mono, _ id.Incarnation, gen id.Generation) []Effect {
			_, fx := b.Chunk(now, other, gen, room1, 0, 0, 4, chunkBytes, false)
			return fx
		}, alwaysFor("foreign")},
		{"the room fails", bothSides, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Fail(now, room1, Because(EngineFailed, "test"))
		}, func(_ Side, s State) string {
			switch {
			case is(s, Absent, Early):
				return "unknown"
			case s == Parked || s.Terminal():
				return "late"
			}
			return ""
		}},
		{"the request is aborted", bothSides, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Abort(now, "1", 0, Because(ClientGone, "test"))
		}, func(side Side, s State) string {
			if s == Failed || side == Prefill && s == Success {
				return "late"
			}
			return ""
		}},
		{"its memory is free", bothSides, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Freed(now, room1)
		}, func(_ Side, s State) string {
			if s.Terminal() {
				return ""
			}
			return "unknown"
		}},
		{"ABORT of another worker", bothSides, func(b *Book, now Mono, _ id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, other, Message{Type: Abort, Room: room1, Gen: gen, Cause: Cause{Code: ClientGone}})
		}, foreignOnceBound},
		{"ABORT of another hand-over", bothSides, func(b *Book, now Mono, peer id.Incarnation, _ id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Abort, Room: room1, Gen: other, Cause: Cause{Code: ClientGone}})
		}, foreignOnceBound},
		{"FAIL of another hand-over", bothSides, func(b *Book, now Mono, peer id.Incarnation, _ id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Fail, Room: room1, Gen: other, Cause: Cause{Code: EngineFailed}})
		}, foreignOnceBound},
		{"FAIL", bothSides, func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Fail, Room: room1, Gen: gen, Cause: Cause{Code: EngineFailed}})
		}, func(side Side, s State) string {
			switch {
			case s.Terminal() || s == Parked || side == Decode && s == Absent:
				return "late"
			case side == Decode && is(s, Prealloc, Bootstrapping):
				return "foreign"
			}
			return ""
		}},
		{"ABORT", bothSides, func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Abort, Room: room1, Gen: gen, Cause: Cause{Code: ClientGone}})
		}, func(side Side, s State) string {
			switch {
			case s.Terminal() || s == Parked || side == Decode && s == Absent:
				return "late"
			case side == Decode && is(s, Prealloc, Bootstrapping):
				return "foreign"
			}
			return ""
		}},
		{"a chunk of another hand-over is settled with an error", []Side{Prefill}, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Settled(now, room1, other, 0, Because(TransferLost, "test"))
		}, func(_ Side, s State) string {
			switch {
			case s.Live():
				return "foreign"
			case s.Terminal():
				return ""
			}
			return "unknown"
		}},
		{"an abort names nobody's request", bothSides, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.Abort(now, "", room1, Because(AbortRequest, "test"))
		}, alwaysFor("")},
		{"READY again", []Side{Prefill}, func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Ready, Room: room1, Gen: gen, Tokens: 10, Window: 20})
		}, func(_ Side, s State) string {
			switch {
			case is(s, Early, WaitingForInput, Transferring):
				return "duplicate"
			case s == Success:
				return "late"
			case is(s, Failed):
				return "" // answered
			}
			return "foreign" // a READY without a generation
		}},
		{"COMMIT of another hand-over", bothSides, func(b *Book, now Mono, peer id.Incarnation, _ id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Commit, Room: room1, Gen: other})
		}, alwaysFor("foreign")},
		{"COMMIT of another worker", bothSides, func(b *Book, now Mono, _ id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, other, Message{Type: Commit, Room: room1, Gen: gen})
		}, alwaysFor("foreign")},
		{"COMMIT to decode", []Side{Decode}, func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: Commit, Room: room1, Gen: gen})
		}, alwaysFor("foreign")},
		{"a session to another worker", bothSides, func(b *Book, now Mono, _ id.Incarnation, _ id.Generation) []Effect {
			return b.PeerUp(now, room1, other, 77)
		}, func(side Side, s State) string {
			bound := is(s, Early, WaitingForInput, Transferring, Success, Failed) && !(side == Decode && s == Bootstrapping)
			switch {
			case side == Prefill && s == WaitingForInput, bound:
				return "foreign"
			case side == Decode && s == Absent:
				return "unknown"
			}
			return ""
		}},
		{"a message that is none", bothSides, func(b *Book, now Mono, peer id.Incarnation, gen id.Generation) []Effect {
			return b.Message(now, peer, Message{Type: 99, Room: room1, Gen: gen})
		}, alwaysFor("type")},
	} {
		for _, side := range c.side {
			for _, s := range sideStates[side] {
				w, n, gen := inState(t, side, s)
				peer := []*node{w.d, w.p}[side].inc
				want := []string{}
				if r := c.want(side, s); r != "" {
					want = append(want, r)
				}
				if got := reasons(t, n.book, func() []Effect { return c.do(n.book, w.now, peer, gen) }); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s, %s in %s: ignored as %v, want %v", c.what, side, s, got, want)
				}
				if now := state(n); len(want) > 0 && now != s {
					t.Errorf("%s, %s in %s: ignored, and yet the room is in %s", c.what, side, s, now)
				}
			}
		}
	}
}

var bothSides = []Side{Prefill, Decode}

func alwaysFor(reason string) func(Side, State) string {
	return func(Side, State) string { return reason }
}

// foreignOnceBound is how an ending of another hand-over is ignored.
func foreignOnceBound(side Side, s State) string {
	switch {
	case is(s, Early, WaitingForInput, Transferring, Success, Failed):
		return "foreign"
	case side == Prefill && s == Parked, side == Decode && s == Absent:
		return "late"
	case side == Decode:
		return "foreign"
	}
	return ""
}
