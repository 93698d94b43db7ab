package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// ReadBody reads a request's body to its end, at most max bytes within timeout
// (0: the defaults). It comes before anything long: only after the body's end does net/http watch
// the connection and cancel r.Context when the client leaves.
func ReadBody(w http.ResponseWriter, r *http.Request, max int64, timeout time.Duration) ([]byte, *room.Cause) {
	if max <= 0 {
		max = DefaultMaxBody
	}
	if timeout <= 0 {
		timeout = DefaultBodyTimeout
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, room.Because(room.BadRequest, "the body's Content-Encoding %q is not supported: send it plain", e)
	}
	if r.ContentLength > max {
		return nil, room.Because(room.BadRequest, "the body of %d bytes is above the limit of %d", r.ContentLength, max)
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, room.Because(room.ClientGone, "before the body was read: %v", err)
	}
	var buf bytes.Buffer
	buf.Grow(int(min(1+r.ContentLength, 1<<20)) + bytes.MinRead) // a client's word is worth 1 MiB
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, max))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, room.Because(room.BadRequest, "the body is above the limit of %d bytes", max)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, room.Because(room.ClientGone, "the body did not arrive within %v: %d bytes did", timeout, buf.Len())
	case err != nil:
		return nil, room.Because(room.ClientGone, "while the body was read: %v", err)
	}
	// Otherwise the deadline would end the watch for the client's leaving.
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, room.Because(room.ClientGone, "after the body was read: %v", err)
	}
	return buf.Bytes(), nil
}

// WriteJSON answers with a whole JSON document within WriteTimeout.
func WriteJSON(w http.ResponseWriter, status int, body []byte) error {
	renew(http.NewResponseController(w), WriteTimeout)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// renew gives the next write its own deadline. A ResponseWriter that has none, as
// in tests, is left alone.
func renew(rc *http.ResponseController, timeout time.Duration) {
	_ = rc.SetWriteDeadline(time.Now().Add(timeout)) // a broken connection tells the write itself
}

// NewServer returns a server for handler with every limit set. Its WriteTimeout
// gives each request of a connection a fresh write deadline; longer answers
// renew it before each write, as SSE and WriteJSON do. base is the parent of
// every request's context.
func NewServer(base context.Context, handler http.Handler, errorLog *log.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: ReadHeaderTimeout,
		IdleTimeout:       IdleTimeout,
		WriteTimeout:      WriteTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		ErrorLog:          errorLog,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(SocketBuffer) // a hint: without it only memory is lost
			}
			return ctx
		},
	}
}

// encode is json.Marshal for types of ours, which cannot fail, without the HTML
// escapes that only make a text longer.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // a type of ours that JSON cannot hold: a bug found by the first test
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
