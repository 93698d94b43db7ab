package fault

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is a frame of the data plane with that type, whose bytes after the prefix count.
func wire(typ byte, size int) []byte {
	b := make([]byte, size)
	copy(b, "TDMD")
	b[4], b[5] = typ, 1
	for i := answerSize; i < size; i++ {
		b[i] = byte(i)
	}
	return b
}

// chunkOf is a CHUNK with a payload of n bytes.
func chunkOf(n int) []byte {
	b := wire(3, chunkSize+n)
	copy(b[40:48], []byte{byte(n), 0, 0, 0, 0, 0, 0, 0})
	b[6] = 1 // the last
	return b
}

// prefill is a listener that takes a HELLO, answers, and then sends what it is given.
func prefill(t *testing.T, say <-chan []byte) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := io.ReadFull(c, make([]byte, helloSize)); err != nil {
			t.Error(err)
		}
		_, _ = c.Write(wire(2, answerSize))
		for b := range say {
			_, _ = c.Write(b)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l
}

// decode is a data connection through a proxy, opened.
func decode(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr(Data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(wire(1, helloSize)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, answerSize)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFramesArriveAsTheyWereSentAndAsARuleHasThem(t *testing.T) {
	say := make(chan []byte)
	l := prefill(t, say)
	p, err := New(Target{Data: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	t.Cleanup(func() { close(say) })
	c := decode(t, p)
	sent := chunkOf(10)
	expect := func(want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: got\n%x, want\n%x", err, got, want)
		}
	}
	at := Point{Data, ToDecode, "CHUNK"}

	say <- sent
	expect(sent)

	flip := p.Add(Rule{Point: at, Do: Flip, At: -1, Times: 1, Match: func(f Frame) bool { return f.Last }})
	flipped := bytes.Clone(sent)
	flipped[len(flipped)-1] ^= 1
	say <- sent
	expect(flipped)

	p.Add(Rule{Point: at, Do: Drop, Times: 1})
	say <- chunkOf(20) // is lost
	say <- sent
	expect(sent)

	p.Add(Rule{Point: at, Do: Duplicate, Times: 1})
	say <- sent
	expect(append(bytes.Clone(sent), sent...))

	p.Add(Rule{Point: at, Do: Reorder, Times: 1})
	say <- chunkOf(20)
	say <- sent
	expect(append(bytes.Clone(sent), chunkOf(20)...))

	held := p.Add(Rule{Point: at, Do: Hold, Times: 1})
	say <- sent
	<-held.Met()
	held.Release()
	expect(sent)

	p.Add(Rule{Point: at, Do: Cut, At: 30, Times: 1})
	say <- sent
	if got, err := io.ReadAll(c); len(got) > 30 {
		t.Errorf("%d bytes of 30 came (%v)", len(got), err)
	}
	if n := p.Seen()[at]; n != 9 {
		t.Errorf("%d chunks were seen, 9 were sent", n)
	}
	if flip.Hits() != 1 || p.Done()["drop data CHUNK to decode"] != 1 || len(p.Done()) != 6 {
		t.Errorf("counted %v", p.Done())
	}
}

func TestTheRegistryNamesTheProxy(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"rank_ip":"192.0.2.1","rank_port":7,"control_addr":"192.0.2.1:7","incarnation":"00000000000000aa"}`)
	}))
	t.Cleanup(srv.Close)
	p, err := New(Target{Registry: strings.TrimPrefix(srv.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + p.addr(Registry) + "/route?x=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m["control_addr"] != p.addr(Control) || m["rank_port"] != float64(p.Port(Control)) || m["incarnation"] != "00000000000000aa" {
		t.Errorf("%v", m)
	}
	p.Add(Rule{Point: Point{Registry, ToDecode, "ROUTE"}, Do: Truncate, At: 10})
	if resp, err := client.Get("http://" + p.addr(Registry) + "/route"); err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			t.Error("a truncated answer came whole")
		}
	}
}
