package kv

import "sort"

// span is [off, off+len) of the arena.
type span struct{ off, len int }

// spans is the free list: sorted by offset, no two adjacent, none empty.
type spans struct {
	list []span
	free int // sum of the lengths
}

func (s *spans) reset(n int) { s.list, s.free = []span{{0, n}}, n }

// take removes n bytes from the first span that is long enough.
func (s *spans) take(n int) (off int, ok bool) {
	if n == 0 {
		return 0, true
	}
	for i := range s.list {
		f := &s.list[i]
		if f.len < n {
			continue
		}
		off = f.off
		f.off += n
		f.len -= n
		if f.len == 0 {
			s.list = append(s.list[:i], s.list[i+1:]...)
		}
		s.free -= n
		return off, true
	}
	return 0, false
}

// give puts [off, off+n) back and joins it with its free neighbours.
func (s *spans) give(off, n int) {
	if n == 0 {
		return
	}
	s.free += n
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].off > off })
	left := i > 0 && s.list[i-1].off+s.list[i-1].len == off
	right := i < len(s.list) && off+n == s.list[i].off
	switch {
	case left && right:
		s.list[i-1].len += n + s.list[i].len
		s.list = append(s.list[:i], s.list[i+1:]...)
	case left:
		s.list[i-1].len += n
	case right:
		s.list[i].off -= n
		s.list[i].len += n
	default:
		s.list = append(s.list, span{})
		copy(s.list[i+1:], s.list[i:])
		s.list[i] = span{off, n}
	}
}

func (s *spans) longest() int {
	n := 0
	for _, f := range s.list {
		n = max(n, f.len)
	}
	return n
}
