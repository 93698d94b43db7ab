package kv

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newArena(t testing.TB, c ArenaConfig) *Arena {
	t.Helper()
	a, err := NewArena(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// After any history, free + Σ leases = arena, leases are aligned and disjoint,
// and after releasing all of them the whole arena is one span again.
func TestFreeAndLeasesAlwaysAddUpToTheArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := NewArena(ArenaConfig{Bytes: 1 << 16, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		var live []*Lease
		check := func() {
			s := a.Stats()
			sum := 0
			for _, n := range s.ByOwner {
				sum += n
			}
			if s.Free+sum != s.Total || s.Leases != len(live) {
				t.Fatalf("free %d + leased %d of %d, %d leases, want %d", s.Free, sum, s.Total, s.Leases, len(live))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.IntRange(0, 9000).Draw(t, "n")
				l, err := a.Alloc(n, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"))
				if errors.Is(err, ErrArenaFull) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(l.Bytes()) != n || l.Offset()%leaseAlign != 0 {
					t.Fatalf("%d bytes at %d, want %d", len(l.Bytes()), l.Offset(), n)
				}
				for i := range l.Bytes() {
					l.Bytes()[i] = byte(l.ID())
				}
				live = append(live, l)
			},
			"release": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
				l := live[i]
				for _, b := range l.Bytes() {
					if b != byte(l.ID()) {
						t.Fatalf("lease %d was overwritten", l.ID())
					}
				}
				l.Retain()
				l.Release()
				l.Release()
				live = append(live[:i], live[i+1:]...)
			},
			"": func(*rapid.T) { check() },
		})
		for _, l := range live {
			l.Release()
		}
		live = nil
		check()
		if l, err := a.Alloc(1<<16, "all"); err != nil {
			t.Fatalf("spans were not joined: %v", err)
		} else {
			l.Release()
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFullArenaSaysHowFullItIs(t *testing.T) {
	a := newArena(t, ArenaConfig{Bytes: 8192})
	l, err := a.Alloc(8000, "room 7")
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Alloc(1000, "room 8")
	if !errors.Is(err, ErrArenaFull) || !strings.Contains(err.Error(), "1000 bytes asked for by room 8, 192 of 8192 free") {
		t.Fatalf("got %v", err)
	}
	if _, err := a.Alloc(int(^uint(0)>>1), "greedy"); !errors.Is(err, ErrArenaFull) {
		t.Fatalf("got %v", err)
	}
	if err := a.Close(); err == nil {
		t.Fatal("closed with a lease alive")
	}
	l.Release()
}

func TestADoubleReleaseIsCountedAndFreesNothing(t *testing.T) {
	a := newArena(t, ArenaConfig{Bytes: 4096})
	l, _ := a.Alloc(64, "x")
	l.Release()
	other, _ := a.Alloc(64, "y")
	l.Release()
	l.Retain()
	if s := a.Stats(); s.Misuse != 2 || s.Leases != 1 || s.Free != 4096-64 {
		t.Fatalf("%+v", s)
	}
	other.Release()
}

func TestADoubleReleasePanicsWhenStrict(t *testing.T) {
	a := newArena(t, ArenaConfig{Bytes: 4096, Strict: true})
	l, _ := a.Alloc(64, "x")
	l.Release()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	l.Release()
}

func TestAgesFollowTheGivenClock(t *testing.T) {
	now := time.Unix(1000, 0)
	a := newArena(t, ArenaConfig{Bytes: 4096, Now: func() time.Time { return now }})
	old, _ := a.Alloc(0, "x")
	now = now.Add(3 * time.Second)
	young, _ := a.Alloc(0, "x")
	if s := a.Stats(); s.Oldest != 3*time.Second || old.Age() != 3*time.Second || young.Age() != 0 {
		t.Fatalf("%v %v %v", s.Oldest, old.Age(), young.Age())
	}
	old.Release()
	young.Release()
}
