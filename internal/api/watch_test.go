package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// tcpServer serves handler on a real socket, as the kernel's word is what is tested.
func tcpServer(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(context.Background(), handler, nil)
	served := make(chan struct{})
	go func() { defer close(served); srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-served })
	return ln.Addr().String()
}

const tcpRequest = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

func TestAClientThatSentAByteTooManyAndLeftIsNoticed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of a peer that left without a read")
	}
	for name, leave := range map[string]func(*net.TCPConn){
		"FIN":        func(c *net.TCPConn) { c.Close() },
		"half-close": func(c *net.TCPConn) { c.CloseWrite() },
		"RST":        func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			waiting, noticed := make(chan struct{}), make(chan error, 1)
			addr := tcpServer(t, func(w http.ResponseWriter, r *http.Request) {
				_, done, _ := ReadBody(w, r, 0, 0)
				defer done()
				ctx, stop := Watch(r.Context(), r)
				defer stop()
				close(waiting)
				select {
				case <-ctx.Done():
					noticed <- context.Cause(ctx)
				case <-time.After(5 * time.Second):
					noticed <- nil
				}
			})
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, tcpRequest)
			<-waiting
			io.WriteString(c, "G")
			leave(c.(*net.TCPConn))
			// A reset may overtake the byte, and then net/http notices by itself.
			if err := <-noticed; err == nil || err != ErrClientGone && name != "RST" {
				t.Errorf("noticed as %v", err)
			}
		})
	}
}

func TestAClientThatStaysIsNotDisturbed(t *testing.T) {
	addr := tcpServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, done, _ := ReadBody(w, r, 0, 0)
		defer done()
		ctx, stop := Watch(r.Context(), r)
		defer stop()
		select {
		case <-ctx.Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(3 * WatchPeriod):
		}
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 { // the second waits in the kernel while the first is watched
		io.WriteString(c, tcpRequest)
	}
	head := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 200" {
		t.Errorf("%s %v", head, err)
	}
}

func TestAWatcherWithNothingToWatchRests(t *testing.T) {
	w := newWatcher()
	x := &watch{cancel: func(error) {}}
	w.armed = true // as if add had armed a timer, which is the test's
	w.watches[x] = struct{}{}
	w.remove(x)
	w.look()
	if w.armed || len(w.watches)+len(w.round) > 0 {
		t.Errorf("%+v", w)
	}
}

func BenchmarkARoundOver10000Connections(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	var raws []syscall.RawConn // fewer than a process may have; each is watched often
	for range 200 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			b.Fatal(err)
		}
		raws = append(raws, raw)
	}
	w := newWatcher()
	w.armed = true
	for i := range 10_000 {
		w.watches[&watch{raw: raws[i%len(raws)], cancel: func(error) { b.Error("one is gone") }}] = struct{}{}
	}
	for b.Loop() {
		for x := range w.watches {
			w.round = append(w.round, x)
		}
		w.poll.gone(w.round, func(*watch) { b.Error("one is gone") })
		w.round = w.round[:0]
	}
}
