//go:build !linux

package tcp

import (
	"net"
	"time"
)

// userTimeout is Linux's; elsewhere keep-alives find a vanished machine.
func userTimeout(*net.TCPConn, time.Duration) {}
