//go:build unix && !linux

package kv

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sharedFile exists on Linux only: other systems have no sealed memfd.
type sharedFile struct{}

// File returns nil: a shared arena needs Linux.
func (a *Arena) File() *os.File { return nil }

func mapMemory(n int, shared bool) ([]byte, *sharedFile, error) {
	if shared {
		return nil, nil, errors.New("shared memory needs Linux")
	}
	page := os.Getpagesize()
	n = (n + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap: %w", err)
	}
	for i := 0; i < n; i += page {
		mem[i] = 0
	}
	return mem, nil, nil
}

func unmapMemory(mem []byte, _ *sharedFile) error { return unix.Munmap(mem) }
