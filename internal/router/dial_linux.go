package router

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeoutMs is how long sent bytes may stay unacknowledged. It is the time in
// which a frozen peer is fenced.
const userTimeoutMs = 5000

func userTimeout(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeoutMs)
	}); e != nil {
		return e
	}
	return err
}
