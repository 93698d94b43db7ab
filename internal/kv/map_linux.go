package kv

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sharedFile is the memfd behind a shared arena; nil for a private one.
type sharedFile struct{ f *os.File }

// File returns the memfd of a shared arena, sealed against shrinking, growing
// and new writable mappings, for passing to a process that maps it read-only;
// nil for a private arena. It is owned by the arena.
func (a *Arena) File() *os.File {
	if a.shared == nil {
		return nil
	}
	return a.shared.f
}

// mapMemory maps n bytes, rounded up to pages, and faults them in, so that a
// shortage of memory shows now and not as a signal inside a library call.
func mapMemory(n int, shared bool) ([]byte, *sharedFile, error) {
	page := os.Getpagesize()
	if n > 1<<62-page {
		return nil, nil, errors.New("too large")
	}
	n = (n + page - 1) / page * page
	if !shared {
		mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, nil, fmt.Errorf("mmap: %w", err)
		}
		if err := populate(mem); err != nil {
			unix.Munmap(mem)
			return nil, nil, err
		}
		return mem, nil, nil
	}
	fd, err := unix.MemfdCreate("tandem-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}
	s := &sharedFile{f: os.NewFile(uintptr(fd), "tandem-arena")}
	mem, err := mapShared(fd, n)
	if err != nil {
		s.f.Close()
		return nil, nil, err
	}
	return mem, s, nil
}

func mapShared(fd, n int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if err := populate(mem); err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	// Our own writable mapping exists already, so FUTURE_WRITE leaves it alone.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("seal: %w", err)
	}
	return mem, nil
}

// populate faults all pages in with one system call, in huge pages where the
// kernel has them, which makes it about ten times cheaper than touching each.
func populate(mem []byte) error {
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // only a hint
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	switch {
	case errors.Is(err, unix.EINVAL): // Linux before 5.14
		for i := 0; i < len(mem); i += os.Getpagesize() {
			mem[i] = 0
		}
		return nil
	case err != nil:
		return fmt.Errorf("not enough memory to fault the pages in: %w", err)
	}
	return nil
}

func unmapMemory(mem []byte, s *sharedFile) error {
	err := unix.Munmap(mem)
	if s != nil {
		err = errors.Join(err, s.f.Close())
	}
	return err
}
