//go:build !linux

package api

// canWatch is false: POLLRDHUP is Linux's. Elsewhere net/http's own watch, the
// heartbeats and the deadline must do.
const canWatch = false

type poller struct{}

func (*poller) gone([]*watch, func(*watch)) {}
