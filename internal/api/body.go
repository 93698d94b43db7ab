package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

// ReadBody reads a request's body to its end, at most max bytes within timeout
// (0: the defaults), charged to Bodies. It comes before anything long: only after the
// body's end does net/http watch the connection and cancel r.Context when the client
// leaves. Call done when nothing uses the body any more; it is never nil.
func ReadBody(w http.ResponseWriter, r *http.Request, max int64, timeout time.Duration) (body []byte, done func(), cause *room.Cause) {
	return Bodies.Read(w, r, max, timeout)
}

// Read is ReadBody, charged to b.
func (b *BodyBudget) Read(w http.ResponseWriter, r *http.Request, max int64, timeout time.Duration) (body []byte, done func(), cause *room.Cause) {
	c := &charged{budget: b}
	if cause := c.read(w, r, max, timeout); cause != nil {
		c.release()
		return nil, func() {}, cause
	}
	return c.buf, sync.OnceFunc(c.release), nil
}

func (c *charged) read(w http.ResponseWriter, r *http.Request, max int64, timeout time.Duration) *room.Cause {
	if max <= 0 {
		max = DefaultMaxBody
	}
	if timeout <= 0 {
		timeout = DefaultBodyTimeout
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return room.Because(room.BadRequest, "the body's Content-Encoding %q is not supported: send it plain", e)
	}
	if r.ContentLength > max {
		return room.Because(room.BadRequest, "the body of %d bytes is above the limit of %d", r.ContentLength, max)
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return room.Because(room.ClientGone, "before the body was read: %v", err)
	}
	err := c.fill(http.MaxBytesReader(w, r.Body, max), r.ContentLength, max)
	var tooLarge *http.MaxBytesError
	switch {
	case err == errBudget:
		// Else net/http would wait for the rest of the body before the answer.
		w.Header().Set("Connection", "close")
		return c.budget.full()
	case errors.As(err, &tooLarge):
		return room.Because(room.BadRequest, "the body is above the limit of %d bytes", max)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return room.Because(room.ClientGone, "the body did not arrive within %v: %d bytes did", timeout, len(c.buf))
	case err != nil && hungUp(err):
		return room.Because(room.ClientGone, "while the body was read: %v", err)
	case err != nil:
		return room.Because(room.BadRequest, "the body's encoding is broken: %v", err)
	}
	// Otherwise the deadline would end the watch for the client's leaving.
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return room.Because(room.ClientGone, "after the body was read: %v", err)
	}
	return nil
}

// errBudget is a body that the budget has no bytes for.
var errBudget = errors.New("over the budget")

// fill reads body to its end. length is what the client announced, -1 if nothing.
func (c *charged) fill(body io.Reader, length, max int64) error {
	if length > c.budget.limit-c.budget.Used() { // why wait until it has arrived
		return errBudget
	}
	// One byte more than there is lets the end be read without growing again.
	most := max + 1
	if length >= 0 {
		most = length + 1
	}
	for {
		if len(c.buf) == cap(c.buf) && !c.grow(most) {
			return errBudget
		}
		n, err := body.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if int64(len(c.buf)) >= most { // a reader that gives more than it may: a test's
			return &http.MaxBytesError{Limit: most - 1}
		}
	}
}

// hungUp says that a body broke off with its connection. All other errors are
// net/http's complaints about how the body was encoded.
func hungUp(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "unexpected EOF")
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
// every request's context. Handlers can Watch their connections.
func NewServer(base context.Context, handler http.Handler, errorLog *log.Logger) *http.Server {
	watcher := newWatcher()
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
			return watcher.keep(ctx, c)
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
