package router

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// eventually polls, for tests with real sockets.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(10 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-patience:
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

func TestAClientThatSentAByteTooManyIsNoticedBeforeAnyAnswer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of a peer that left without a read")
	}
	for name, body := range map[string]string{"stream": streamBody, "whole": wholeBody} {
		t.Run(name, func(t *testing.T) {
			var fakes []*fake
			for _, role := range []string{"prefill", "decode"} {
				f := &fake{info: `{"role":"` + role + `","bootstrap_port":8998,"model":"m"}`, leg: hang,
					health: func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"status":"healthy"}`) }}
				srv := httptest.NewServer(f)
				defer srv.Close()
				f.addr = srv.URL
				fakes = append(fakes, f)
			}
			p, d := fakes[0], fakes[1]
			r, err := New(Config{Prefills: []Worker{{URL: p.addr}}, Decodes: []Worker{{URL: d.addr}}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { r.Run(ctx) })
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := api.NewServer(context.Background(), r.Handler(), slog.NewLogLogger(slog.DiscardHandler, 0))
			wg.Go(func() { srv.Serve(ln) })
			defer func() { srv.Close(); stop(); wg.Wait() }()
			eventually(t, "a pair is usable", func() bool { _, all := r.pool.models(); return all })

			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: router\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			eventually(t, "both legs are sent", func() bool {
				calls, _ := p.got()
				more, _ := d.got()
				return len(calls) == 1 && len(more) == 1
			})
			io.WriteString(c, "G")
			c.Close()
			eventually(t, "the record has ended", func() bool { _, ended := r.book.list(1); return len(ended) == 1 })
			if _, ended := r.book.list(1); ended[0].Code != string(room.ClientGone) || ended[0].Who != "client" {
				t.Errorf("it ended %+v", ended[0])
			}
			eventually(t, "both workers are told to abort", func() bool {
				_, atP := p.got()
				_, atD := d.got()
				return len(atP) == 1 && len(atD) == 1
			})
		})
	}
}

func TestBodiesBeyondTheBudgetAreRefusedAndGivenBack(t *testing.T) {
	budget := api.NewBodyBudget(10_000)
	inBubble(t, 1, 1, func(c *Config) { c.Bodies = budget }, func(t *testing.T, g *rig) {
		// The answer comes before the body's end, and the connection is closed then: a
		// client that stops at the first failed write would not see it.
		long := `{"prompt":"` + fmt.Sprintf("%020000d", 0) + `"}`
		c, err := g.net.dial(t.Context(), "", "router:80")
		if err != nil {
			t.Fatal(err)
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: router\r\nContent-Length: %d\r\n\r\n%s", len(long), long)
		})
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		c.Close()
		writing.Wait()
		if a := (answer{status: resp.StatusCode, body: string(text)}); err != nil || a.status != 429 || a.code() != string(room.QueueFull) {
			t.Errorf("%+v, %v", a, err)
		}
		g.wantEnd("rejected", room.QueueFull, "router")
		for range 20 { // together more than the budget
			if a := g.post(streamBody); a.status != 200 {
				t.Fatalf("%+v", a)
			}
		}
		if budget.Used() != 0 {
			t.Errorf("%d bytes are charged at the end", budget.Used())
		}
	})
}
