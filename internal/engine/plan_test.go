package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPiecesKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := limits{chunk: 256, min: 32, max: int32(rapid.IntRange(40, 600).Draw(t, "max"))}
		lim.budget = int32(rapid.IntRange(1, 600).Draw(t, "budget"))
		decode := rapid.IntRange(0, int(lim.max)-1).Draw(t, "decode")
		var asks []ask
		for range rapid.IntRange(1, 12).Draw(t, "asks") {
			pos := int32(rapid.IntRange(0, 40).Draw(t, "pos")) * 32
			asks = append(asks, ask{pos: pos, end: pos + int32(rapid.IntRange(1, 1000).Draw(t, "len")),
				served: uint64(rapid.IntRange(0, 3).Draw(t, "served"))})
		}
		total := int32(0)
		seen := map[int]bool{}
		out := pieces(asks, decode, lim, nil)
		if len(out) == 0 {
			t.Fatal("nobody gets on")
		}
		oldest := uint64(1 << 60)
		for _, a := range asks {
			oldest = min(oldest, a.served)
		}
		if asks[out[0].ask].served != oldest {
			t.Fatal("who waited longest is not first")
		}
		for _, p := range out {
			a := asks[p.ask]
			if seen[p.ask] || p.pos != a.pos || p.end <= p.pos || p.end > a.end {
				t.Fatalf("piece %+v of %+v", p, a)
			}
			seen[p.ask] = true
			if p.pos/lim.chunk != (p.end-1)/lim.chunk {
				t.Fatalf("piece %+v crosses a chunk border", p)
			}
			room := lim.max - int32(decode)
			if p.end != a.end && p.end%16 != 0 && room >= lim.min {
				t.Fatalf("piece %+v has a border off the grid", p)
			}
			total += p.end - p.pos
		}
		if total+int32(decode) > lim.max || total > max(lim.budget-int32(decode), lim.min) {
			t.Fatalf("%d prompt tokens and %d decode rows, limits %+v", total, decode, lim)
		}
	})
}

func TestTheEarliestDeadlineIsFirstAmongEquals(t *testing.T) {
	now := time.Unix(100, 0)
	asks := []ask{{end: 100}, {end: 100, due: now.Add(time.Second)}, {end: 100, due: now}}
	out := pieces(asks, 0, limits{chunk: 256, budget: 32, min: 32, max: 64}, nil)
	if len(out) != 1 || out[0].ask != 2 {
		t.Fatalf("%+v", out)
	}
}

func TestSpeedFindsBaseAndSlope(t *testing.T) {
	var s speed
	if got := s.budget(250*time.Millisecond, 32, 512); got != 32 {
		t.Fatalf("unmeasured budget %d", got)
	}
	for i := range 100 {
		n := 1 + i%40*8
		s.add(n, 5*time.Millisecond+time.Duration(n)*time.Millisecond)
	}
	if got := s.budget(250*time.Millisecond, 32, 512); got < 240 || got > 246 {
		t.Fatalf("budget %d, want 245", got)
	}
	if got := s.expect(100, 0); got < 104*time.Millisecond || got > 106*time.Millisecond {
		t.Fatalf("expects %v, want 105ms", got)
	}
}
