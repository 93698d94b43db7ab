package router

import (
	"context"
	"net"
	"net/http"
	"time"
)

// DialFunc opens a connection to a worker.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialTCP opens a TCP connection on which a peer that went silent is noticed by
// the kernel, with bytes under way (TCP_USER_TIMEOUT) and without (keep-alive).
func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3},
		Control:         userTimeout,
	}
	return d.DialContext(ctx, network, address)
}

// legTransport keeps connections alive for the legs of one worker.
func legTransport(dial DialFunc) *http.Transport {
	return &http.Transport{
		DialContext:           dial,
		DisableCompression:    true, // the answer is relayed as it is
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   1024,            // a burst's connections are worth keeping for the next
		IdleConnTimeout:       8 * time.Second, // shorter than a worker's, and than the 10 s in which a storm's traces must be gone
		ExpectContinueTimeout: time.Second,
		TLSHandshakeTimeout:   dialTimeout,
		WriteBufferSize:       32 << 10,
		ReadBufferSize:        16 << 10,
	}
}

// freshTransport opens a connection for every request.
func freshTransport(dial DialFunc) *http.Transport {
	return &http.Transport{DialContext: dial, DisableCompression: true, DisableKeepAlives: true, TLSHandshakeTimeout: dialTimeout}
}

// noRedirect: a worker that redirects is not a worker.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
