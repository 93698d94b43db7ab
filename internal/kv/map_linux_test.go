package kv

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestASharedArenaCanBeMappedForReadingOnly(t *testing.T) {
	a := newArena(t, ArenaConfig{Bytes: 8192, Shared: true})
	l, err := a.Alloc(100, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	l.Bytes()[5] = 42
	fd := int(a.File().Fd())
	if _, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Fatal("a writable mapping was allowed")
	}
	if err := unix.Ftruncate(fd, 4096); err == nil {
		t.Fatal("shrinking was allowed")
	}
	m, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if m[l.Offset()+5] != 42 {
		t.Fatal("the reader does not see the bytes")
	}
}
