package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout makes the kernel give up on a peer that acknowledges nothing: a
// machine that vanished sends no RST.
func userTimeout(c *net.TCPConn, d time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
