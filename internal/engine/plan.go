package engine

import (
	"math"
	"slices"
	"time"
)

// ask is one sequence's wish for prompt tokens in the next call. Planning is
// pure: it sees asks and limits, not sequences.
type ask struct {
	pos    int32     // next position to compute
	end    int32     // n−1: where the prompt's KV is complete
	served uint64    // step in which it was served last; 0 for never
	due    time.Time // its request's deadline; zero is latest
}

// before orders asks: who waited longest goes first, among equals the earliest
// deadline. A deadline alone would let urgent arrivals starve the others.
func (a ask) before(b ask) int {
	if a.served != b.served {
		if a.served < b.served {
			return -1
		}
		return 1
	}
	switch {
	case a.due.IsZero() && b.due.IsZero():
		return 0
	case a.due.IsZero():
		return 1
	case b.due.IsZero():
		return -1
	}
	return a.due.Compare(b.due)
}

// limits of one call.
type limits struct {
	chunk  int32 // C
	budget int32 // tokens the measured speed allows in one step
	min    int32 // prompt tokens computed in a step, whatever the speed
	max    int32 // rows the backend takes in one call
}

// piece says: compute [pos, end) of asks[ask].
type piece struct {
	ask      int
	pos, end int32
}

// pieces shares one call's prompt tokens between the asks, after decode rows
// took theirs. Each sequence gets at most one piece, an equal part of what is left
// of its chunk, so that pieces never cross a chunk border and no small one is
// left over: small calls are slow.
func pieces(asks []ask, decode int, lim limits, out []piece) []piece {
	out = out[:0]
	room := lim.max - int32(decode)
	left := min(max(lim.budget-int32(decode), lim.min), room)
	order := make([]int, len(asks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return asks[x].before(asks[y]) })
	for i, x := range order {
		if left <= 0 || (left < lim.min && i > 0) {
			break
		}
		a := asks[x]
		share := left / int32(len(order)-i)
		border := min((a.pos/lim.chunk+1)*lim.chunk, a.end)
		end := a.pos + part(border-a.pos, max(share, lim.min))
		if end-a.pos > left { // only when max leaves less than min
			end = a.pos + left
		}
		out = append(out, piece{ask: x, pos: a.pos, end: end})
		left -= end - a.pos
	}
	return out
}

// grid is what pieces are multiples of, where it divides: matrix kernels work in
// tiles.
const grid = 16

// part returns the size of the next piece of n tokens when a piece may have most:
// as few pieces as possible, as equal as the grid allows.
func part(n, most int32) int32 {
	if n <= most {
		return n
	}
	k := (n + most - 1) / most
	size := ((n+k-1)/k + grid - 1) / grid * grid
	if size > most {
		size = max(most/grid*grid, min(most, grid))
	}
	return size
}

// speed estimates how long a call of n rows takes: base + n × perToken, fitted
// to recent calls by least squares with exponentially fading weights.
type speed struct {
	w, n, nn, t, nt float64
}

// fade is the weight a call keeps after each later call: about 30 calls count.
const fade = 0.97

func (s *speed) add(rows int, d time.Duration) {
	n, t := float64(rows), float64(max(d, 0))
	s.w = s.w*fade + 1
	s.n = s.n*fade + n
	s.nn = s.nn*fade + n*n
	s.t = s.t*fade + t
	s.nt = s.nt*fade + n*t
}

// fit returns the line's base and slope in nanoseconds. With calls of one size
// only, all is put on the slope, which overestimates larger calls: safe.
func (s *speed) fit() (base, perToken float64) {
	if s.n == 0 {
		return 0, 0
	}
	det := s.w*s.nn - s.n*s.n
	if det <= 1e-6*s.w*s.nn {
		return 0, s.t / s.n
	}
	perToken = (s.w*s.nt - s.n*s.t) / det
	base = (s.t - perToken*s.n) / s.w
	if base < 0 || perToken <= 0 {
		return 0, s.t / s.n
	}
	return base, perToken
}

// expect returns the estimate for a call of n rows; unmeasured, def.
func (s *speed) expect(n int, def time.Duration) time.Duration {
	if s.n == 0 {
		return def
	}
	base, per := s.fit()
	return time.Duration(base + per*float64(n))
}

// budget returns the rows that a call of the target's length may have; before
// the first measurement only lo, because nothing is known yet.
func (s *speed) budget(target time.Duration, lo, hi int32) int32 {
	if s.n == 0 {
		return lo
	}
	base, per := s.fit()
	if per <= 0 {
		return hi
	}
	n := math.Floor((float64(target) - base) / per)
	return int32(min(max(n, float64(lo)), float64(hi)))
}
