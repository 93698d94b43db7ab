package vanish

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// leftover is how long a client that left by FIN goes on reading, so that its
// socket ends with the FIN and not with a reset for unread bytes.
const leftover = 5 * time.Second

// Client is one connection with one request.
type Client struct {
	conn   *net.TCPConn
	bytes  atomic.Int64
	ended  atomic.Bool // no more is read
	reader sync.WaitGroup
}

// Open connects and sends a POST of a JSON body. It returns when the request is
// written, not when an answer comes.
func Open(ctx context.Context, addr, path string, body []byte) (*Client, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, addr, len(body))
	if _, err := conn.Write(append([]byte(head), body...)); err != nil {
		conn.Close()
		return nil, err
	}
	c := &Client{conn: conn.(*net.TCPConn)}
	c.reader.Go(c.read)
	return c, nil
}

// read forgets what comes, to the connection's end.
func (c *Client) read() {
	defer c.conn.Close()
	buf := make([]byte, 4096)
	for {
		n, err := c.conn.Read(buf)
		c.bytes.Add(int64(n))
		if err != nil {
			c.ended.Store(true)
			return
		}
	}
}

// Read returns how many bytes have come.
func (c *Client) Read() int64 { return c.bytes.Load() }

// Ended reports whether either side has ended the connection.
func (c *Client) Ended() bool { return c.ended.Load() }

// Reset vanishes at once: the kernel sends RST.
func (c *Client) Reset() {
	c.conn.SetLinger(0)
	c.conn.Close()
}

// Leave closes the client's side: the kernel sends FIN. What the server still
// writes is read and forgotten, then the connection is closed.
func (c *Client) Leave() {
	c.conn.SetReadDeadline(time.Now().Add(leftover))
	c.conn.CloseWrite()
}

// Wait returns when nothing is left of the client.
func (c *Client) Wait() { c.reader.Wait() }

// Crowd is many clients.
type Crowd []*Client

// OpenAll opens n clients at once; body makes the i-th one's request.
func OpenAll(ctx context.Context, addr, path string, n int, body func(i int) []byte) (Crowd, error) {
	var wg sync.WaitGroup
	crowd, errs := make(Crowd, n), make([]error, n)
	gate := make(chan struct{}, 64) // connections being made: a listener's backlog is no subject here
	for i := range n {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			crowd[i], errs[i] = Open(ctx, addr, path, body(i))
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			crowd.Vanish()
			crowd.Wait()
			return nil, err
		}
	}
	return crowd, nil
}

// Vanish ends all clients at once, every second one by RST and the others by
// FIN, and says how long the instant was.
func (crowd Crowd) Vanish() time.Duration {
	began := time.Now()
	for i, c := range crowd {
		switch {
		case c == nil:
		case i%2 == 0:
			c.Reset()
		default:
			c.Leave()
		}
	}
	return time.Since(began)
}

// Reset ends all clients at once by RST; those that ended before are left alone.
func (crowd Crowd) Reset() {
	for _, c := range crowd {
		if c != nil && !c.Ended() {
			c.Reset()
		}
	}
}

// Wait returns when nothing is left of any client.
func (crowd Crowd) Wait() {
	for _, c := range crowd {
		if c != nil {
			c.Wait()
		}
	}
}

// Addr returns the host:port of an http URL.
func Addr(url string) string {
	return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
}
