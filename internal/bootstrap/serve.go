package bootstrap

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of Serve. A request and its answer are one packet each, so a client
// that needs longer is slow on purpose or dead.
const (
	// DefaultPort is SGLang's --disaggregation-bootstrap-port.
	DefaultPort = 8998
	// serveTimeout for reading a request, and for writing an answer.
	serveTimeout = 5 * time.Second
	// idleTimeout outlasts SGLang's heartbeat of 5 s on a kept connection.
	idleTimeout = 30 * time.Second
	// maxHeader bytes of a request; ours have 200.
	maxHeader = 8 << 10
	// maxConns open at one time: a slow loris gets these and no more, for serveTimeout.
	maxConns = 1024
)

// Serve serves h on lis until ctx ends, closes lis, and returns when all
// connections are closed.
func Serve(ctx context.Context, lis net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: serveTimeout,
		ReadTimeout:       serveTimeout,
		WriteTimeout:      serveTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(discard{}, "", 0), // it logs every foreign byte
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(short) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(&limited{Listener: lis, free: make(chan struct{}, maxConns)})
	if stop() { // it ended by itself
		srv.Close()
		return err
	}
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// limited closes connections beyond its capacity at once, so that the ones that
// are served stay few.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, l: l}, nil
		default:
			c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	l    *limited
	once sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { <-c.l.free })
	return c.Conn.Close()
}
