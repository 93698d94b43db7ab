//go:build unix

package fetch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock returns whether it took the lock; closing f releases it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
