package worker

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/engine/sim"
)

func TestAClientThatSentAByteTooManyAndLeftStopsItsGeneration(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of a peer that left without a read")
	}
	s := serve(t, Config{Engine: "sim", Sim: sim.Config{CallTime: 20 * time.Millisecond}})
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"prompt":"hello","max_tokens":5000}` // 100 s, and no stream
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	record := s.s.parts.Load().record
	until := func(what string, is func() bool) {
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
	until("the request runs", func() bool { return record.Live() == 1 })
	io.WriteString(c, "G")
	c.Close()
	until("the request has ended", func() bool { return record.Live() == 0 })
	until("its cells are free", func() bool { held, _ := s.s.parts.Load().engine.Cells(); return held == 0 })
}
