package keeper

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/svc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestADeadlineIsSweptAtItsExactTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan *room.Cause, 1)
		k := New(room.New(room.Decode, 4, room.Limits{}), func(e room.Effect) {
			if a, ok := e.(room.Answer); ok {
				answered <- a.Cause
			}
		})
		g := svc.New(t.Context(), "test", nil)
		g.Go("sweep", k.Sweep)
		began := time.Now()
		k.Do(func(b *room.Book, now room.Mono) []room.Effect {
			return b.LegArrived(now, room.Leg{Room: 1, RID: "r", Tokens: 9, Deadline: now.After(7 * time.Second)})
		})
		c := <-answered
		if c.Code != room.Deadline || time.Since(began) != 7*time.Second {
			t.Fatalf("%v after %v, want the deadline at exactly 7 s", c, time.Since(began))
		}
		g.Stop(nil)
		g.Wait()
	})
}

func TestAnEffectThatCausesAnEventIsPerformedFirstAndTheRestInOrder(t *testing.T) {
	var k *Keeper
	var seen []string
	k = New(room.New(room.Decode, 4, room.Limits{}), func(e room.Effect) {
		switch e := e.(type) {
		case room.Enqueue:
			seen = append(seen, "enqueue")
			k.Do(func(b *room.Book, now room.Mono) []room.Effect {
				return b.Fail(now, e.Room, room.Because(room.Bug, "test"))
			})
			seen = append(seen, "enqueued")
		case room.Moved:
			seen = append(seen, "moved to "+e.To.String())
		case room.Answer:
			seen = append(seen, "answer")
		}
	})
	k.Do(func(b *room.Book, now room.Mono) []room.Effect {
		return b.LegArrived(now, room.Leg{Room: 1, RID: "r", Tokens: 9, Deadline: now.After(time.Second)})
	})
	want := []string{"moved to Prealloc", "enqueue", "enqueued", "moved to Failed", "answer"}
	for i := range want {
		if i >= len(seen) || seen[i] != want[i] {
			t.Fatalf("performed %q, want %q", seen, want)
		}
	}
}

func TestAPerformerThatPanicsLeavesTheKeeperUsable(t *testing.T) {
	calls := 0
	k := New(room.New(room.Decode, 4, room.Limits{}), func(room.Effect) {
		calls++
		if calls == 1 {
			panic("performer")
		}
	})
	leg := func(b *room.Book, now room.Mono) []room.Effect {
		return b.LegArrived(now, room.Leg{Room: 1, RID: "r", Tokens: 9, Deadline: now.After(time.Second)})
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("the panic was swallowed")
			}
		}()
		k.Do(leg)
	}()
	k.Do(leg)
	if calls < 2 {
		t.Fatal("nothing was performed after a panic")
	}
}
