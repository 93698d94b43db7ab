package api

import (
	"slices"

	"golang.org/x/sys/unix"
)

const canWatch = true

// pollBatch is how many connections one poll takes: the kernel refuses more than the
// process may have files, whose usual limit this is.
const pollBatch = 1024

// poller asks the kernel which peers have left. It reads nothing.
type poller struct {
	fds []unix.PollFd
	fd  int32         // what set was told last
	set func(uintptr) // made once: it would escape in each of 10,000 calls
}

// gone calls left for each watch whose peer has left.
//
// An fd is used after Control has let go of it. It can then be another connection's
// only because this one was closed, and a closed connection's peer may be called gone.
func (p *poller) gone(watches []*watch, left func(*watch)) {
	if p.set == nil {
		p.set = func(fd uintptr) { p.fd = int32(fd) }
	}
	for batch := range slices.Chunk(watches, pollBatch) {
		p.fds = p.fds[:0]
		for _, x := range batch {
			p.fd = -1 // poll skips it
			if err := x.raw.Control(p.set); err != nil {
				left(x) // closed on our side
			}
			p.fds = append(p.fds, unix.PollFd{Fd: p.fd, Events: unix.POLLRDHUP})
		}
		if _, err := unix.Poll(p.fds, 0); err != nil {
			continue // a signal came in between: the next round is near
		}
		for i, x := range batch {
			if p.fds[i].Revents&(unix.POLLRDHUP|unix.POLLERR|unix.POLLHUP) != 0 {
				left(x)
			}
		}
	}
}
