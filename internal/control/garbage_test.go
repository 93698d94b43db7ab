package control

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// eventually waits for a condition in real time, by polling: what it waits for
// happens in another library's goroutines.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(10 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

func realPair(t *testing.T) (p, d *worker, addr string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = lis.Addr().String()
	p = start(t, nil, 0xA, 7, lis)
	d = start(t, nil, 0xD, 7, nil)
	d.Dial(addr)
	eventually(t, "a session", func() bool { _, ok := d.At(addr); return ok })
	return p, d, addr
}

// canary proves that a message still gets through, on the same session.
func canary(t *testing.T, p, d *worker, r id.Room) {
	t.Helper()
	if err := d.Send(p.self, ready(r)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the canary", func() bool {
		for _, m := range p.got() {
			if m.Room == r {
				return true
			}
		}
		return false
	})
	if h := d.heard(); strings.Contains(h, "down") {
		t.Fatalf("the session was lost: %s", h)
	}
}

// Guards against failures.md G1: one odd frame kills the only control reader.
func TestForeignBytesOnThePortHarmNothing(t *testing.T) {
	p, d, addr := realPair(t)
	noise := make([]byte, 1<<20)
	rand.Read(noise)
	for i, b := range [][]byte{
		{0}, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), noise,
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), noise...),
		Encode(golden()["hello"]),
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Second))
		c.Write(b)
		canary(t, p, d, id.Room(i+1))
		c.Close()
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Second))
	if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("a TLS handshake with a plain port succeeded")
	}
	c.Close()
	canary(t, p, d, 100)
}

func TestConnectionsThatSayNothingAreBounded(t *testing.T) {
	p, d, addr := realPair(t)
	var conns []net.Conn
	for range 3 * MaxPending {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	canary(t, p, d, 1)
	admitted := 0
	for _, c := range conns { // who is admitted gets HTTP/2 SETTINGS, who is not gets EOF
		c.SetReadDeadline(time.Now().Add(2 * time.Second))
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			admitted++
		}
	}
	for _, c := range conns { // only now: a place given back would be taken by one that is still to be accepted
		c.Close()
	}
	if admitted > MaxPending || admitted == 0 {
		t.Errorf("%d of %d silent connections admitted, at most %d", admitted, len(conns), MaxPending)
	}
}

// stranger opens a raw stream, to send what no Node would.
func stranger(t *testing.T, addr string, opts ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(append(opts, grpc.ForceCodecV2(rawCodec{}))...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	st, err := cc.NewStream(ctx, &serviceDesc.Streams[0], sessionMethod)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func helloOf(inc id.Incarnation, layout int) []byte {
	return Encode(Frame{Type: Hello, From: inc, Of: 1, Peer: Peer{Layout: 7, Describe: fmt.Sprint(layout)}})
}

func TestAReaderSurvivesBadFramesUntilTheBudgetIsSpent(t *testing.T) {
	p, d, addr := realPair(t)
	st := stranger(t, addr)
	st.SendMsg(helloOf(0xE, 7))
	var b []byte
	if err := st.RecvMsg(&b); err != nil {
		t.Fatal(err)
	}
	bad := [][]byte{nil, {1}, []byte("NixlMsgGuard"), make([]byte, MaxMessage+1), helloOf(0xE, 7),
		Encode(Frame{Type: roomBase + FrameType(room.Abort), From: 0xBAD, Of: 1, Message: abort(5)}),
		append([]byte("TDMC\x01\x09"), make([]byte, 40)...)}
	for _, f := range bad {
		if err := st.SendMsg(f); err != nil {
			t.Fatal(err)
		}
	}
	good := Encode(Frame{Type: roomBase + FrameType(room.Abort), From: 0xE, Of: 1, Message: abort(6)})
	st.SendMsg(good)
	eventually(t, "the good frame after the bad ones", func() bool { return len(p.got()) == 1 })
	want := Drop{Malformed: 2, Foreign: 1, Version: 1, Oversize: 1, Stale: 1, Misplaced: 1}
	if got := p.Drops(); got != want {
		t.Errorf("drops %+v, want %+v", got, want)
	}
	for range GarbageBudget {
		st.SendMsg([]byte{1})
	}
	eventually(t, "the session of the one who sends garbage to end", func() bool {
		return strings.Contains(p.heard(), "down 000000000000000e")
	})
	if !errors.Is(p.downErr, ErrGarbage) {
		t.Errorf("it ended by %v", p.downErr)
	}
	canary(t, p, d, 50)
}

func TestAFirstFrameOfAnotherVersionIsRefusedWithBothVersions(t *testing.T) {
	_, _, addr := realPair(t)
	st := stranger(t, addr)
	h := helloOf(0xE, 7)
	h[5] = 9
	st.SendMsg(h)
	var b []byte
	if err := st.RecvMsg(&b); err != nil {
		t.Fatal(err)
	}
	f, err := Decode(b)
	if err != nil || f.Type != Refuse || !strings.Contains(f.Cause.Detail, "version 9") || !strings.Contains(f.Cause.Detail, "speaks 1") {
		t.Fatalf("answer %+v, %v", f, err)
	}
}

func TestAMessageThatGRPCItselfRefusesCostsThatConnectionAlone(t *testing.T) {
	p, d, addr := realPair(t)
	st := stranger(t, addr)
	st.SendMsg(helloOf(0xE, 7))
	var b []byte
	if err := st.RecvMsg(&b); err != nil {
		t.Fatal(err)
	}
	st.SendMsg(make([]byte, hardMessage+1))
	eventually(t, "that session to end", func() bool { return strings.Contains(p.heard(), "down 000000000000000e") })
	canary(t, p, d, 1)
}

func TestAPeerThatReadsNothingLosesItsSessionAlone(t *testing.T) {
	p, d, addr := realPair(t)
	st := stranger(t, addr)
	st.SendMsg(helloOf(0xE, 7))
	eventually(t, "its session", func() bool { return strings.Contains(p.heard(), "up 000000000000000e") })
	ping := Encode(Frame{Type: Ping, From: 0xE, Of: 1, Seq: 1})
	big := abort(1)
	big.Cause.Detail = strings.Repeat("x", maxDetail)
	stop := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(p.heard(), "down 000000000000000e") {
		st.SendMsg(ping) // it talks, it only does not listen
		for range 10 {
			p.Send(0xE, big)
		}
		select {
		case <-tick.C:
		case <-stop:
			t.Fatalf("a peer that reads nothing keeps its session: %+v", p.Peers())
		}
	}
	canary(t, p, d, 1)
}
