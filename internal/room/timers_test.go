package room

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
)

// TestTimersOfRoomsThatEndedDoNotPileUp: their deadlines may lie an hour ahead, and a
// busy worker ends millions of rooms by then.
func TestTimersOfRoomsThatEndedDoNotPileUp(t *testing.T) {
	b := New(Prefill, testChunk, Limits{Tombstones: 4})
	const lives, hour = 1000, Mono(1_000_000)
	deadline := func(r id.Room) Mono { return hour + Mono(r)*7919%lives } // in no order, and no two equal
	alive := map[Mono]id.Room{}
	for r := id.Room(1); r <= lives; r++ {
		b.LegArrived(0, Leg{Room: r, RID: id.RID(r.String()), Tokens: 5, Deadline: deadline(r)})
		if r%10 == 0 { // these live on, and their deadlines must not be lost
			alive[deadline(r)] = r
			continue
		}
		b.Fail(0, r, Because(EngineFailed, "test"))
		b.Freed(0, r)
		if most := 2*(len(b.rooms)+1) + spareTimers; len(b.timers) > most { // the one that was forgotten last counted then
			t.Fatalf("%d timers for %d rooms", len(b.timers), len(b.rooms))
		}
	}
	for _, due := range slices.Sorted(maps.Keys(alive)) {
		at, ok := b.Next()
		for ok && at < due { // of an ended room: it does nothing
			if fx := b.Sweep(at); len(fx) > 0 {
				t.Fatalf("%v happened at %v", fx, at)
			}
			at, ok = b.Next()
		}
		if !ok || at != due {
			t.Fatalf("the next timer is at %v, want that of room %d at %v", at, alive[due], due)
		}
		if b.Sweep(at); b.Get(alive[due]).State != Failed {
			t.Fatalf("room %d is %v after its deadline", alive[due], b.Get(alive[due]).State)
		}
	}
}

func TestATimerThatAnEarlierOneReplacedIsTakenOut(t *testing.T) {
	b := New(Prefill, testChunk, Limits{})
	b.LegArrived(0, Leg{Room: 1, RID: "r", Tokens: 5, Deadline: Mono(time.Hour)})
	b.Admitted(0, 1, 0) // READY is due sooner than the request
	if len(b.timers) != 2 {
		t.Fatalf("%d timers: this shows nothing", len(b.timers))
	}
	before, _ := b.Next()
	b.compact()
	if after, ok := b.Next(); len(b.timers) != 1 || !ok || after != before {
		t.Fatalf("%d timers, the next at %v, before at %v", len(b.timers), after, before)
	}
}
