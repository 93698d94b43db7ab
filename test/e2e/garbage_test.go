//go:build unix

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/control"
)

// hold bounds one rude connection.
const hold = 300 * time.Millisecond

// rudeness is one way to treat a port. The connection is closed afterwards.
type rudeness struct {
	name string
	do   func(c net.Conn, r *rand.Rand)
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// sends writes bytes and reads what comes back, if anything does in time.
func sends(b []byte) func(net.Conn, *rand.Rand) {
	return func(c net.Conn, _ *rand.Rand) {
		_, _ = c.Write(b)
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 64<<10))
	}
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// rudenesses are tried on every port, whatever it speaks.
var rudenesses = []rudeness{
	{"nothing", func(net.Conn, *rand.Rand) {}},
	{"random bytes", func(c net.Conn, r *rand.Rand) { sends(noise(r, 1+r.IntN(1<<16)))(c, r) }},
	{"random bytes and a reset", func(c net.Conn, r *rand.Rand) {
		_, _ = c.Write(noise(r, 1+r.IntN(1<<12)))
		_ = c.(*net.TCPConn).SetLinger(0)
	}},
	{"an HTTP hello", sends([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))},
	{"a TLS hello", func(c net.Conn, _ *rand.Rand) { _ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }},
	{"half an HTTP header", sends([]byte("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le"))},
	{"half an HTTP body", sends([]byte("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{\"prompt\": \"once"))},
	{"broken chunks", sends([]byte("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx"))},
	{"a header without end", sends([]byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20)))},
	{"deep JSON", sends(post("/v1/completions", bytes.Repeat([]byte("["), 1<<18)))},
	{"JSON of the wrong shape", sends(post("/v1/completions", []byte(`{"prompt":{"a":[1,2,{"b":null}]},"max_tokens":-1e309}`)))},
	{"a body that is no text", func(c net.Conn, r *rand.Rand) { sends(post("/v1/chat/completions", noise(r, 4096)))(c, r) }},
	{"an abort of no request", sends(post("/abort_request", []byte(`{"rid":"\u0000"}`)))},
	{"a registration", sends([]byte("PUT /route HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n{\"attn_tp_size\":-1,\"rank_ip\":\"\u0000\",\"x\":1}"))},
	{"an HTTP/2 hello", sends([]byte(preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))},
	{"half an HTTP/2 frame", sends([]byte(preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x40\x01\x04\x00\x00\x00\x01\x82"))},
	{"noise after an HTTP/2 hello", func(c net.Conn, r *rand.Rand) {
		sends(append([]byte(preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), noise(r, 2048)...))(c, r)
	}},
	{"an HTTP/2 frame of 16 MB", sends([]byte(preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x01"))},
	{"half a data hello", sends([]byte("TDMD\x01\x01\x00"))},
	{"a data hello with a wrong ticket", func(c net.Conn, r *rand.Rand) {
		sends(append([]byte("TDMD\x01\x01\x00\x00"), noise(r, 56)...))(c, r)
	}},
	{"a control frame without its session", func(c net.Conn, r *rand.Rand) {
		sends(append([]byte("TDMC\x01\x01"), noise(r, 60)...))(c, r)
	}},
}

func post(path string, body []byte) []byte {
	return append(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body)), body...)
}

// listeners are all ports of a fleet.
func (f *fleet) listeners() map[string]string {
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	return map[string]string{"router": at(f.ports.router), "prefill": at(f.ports.prefill), "decode": at(f.ports.decode),
		"bootstrap": at(f.ports.bootstrap), "control": at(f.ports.control), "data": at(f.ports.data)}
}

// siege treats every port rudely until stopped.
type siege struct {
	stop  context.CancelFunc
	tasks sync.WaitGroup
	mu    sync.Mutex
	done  map[string]int // by rudeness, on all ports
}

// besiege starts two rude clients on each port, and slow ones that send a header a
// byte at a time.
func (f *fleet) besiege() *siege {
	ctx, stop := context.WithCancel(context.Background())
	s := &siege{stop: stop, done: map[string]int{}}
	f.t.Cleanup(s.end)
	seed := uint64(time.Now().UnixNano())
	f.t.Logf("the noise has seed %d", seed)
	for name, addr := range f.listeners() {
		for i := range uint64(2) {
			s.tasks.Go(func() { s.rude(ctx, addr, rand.New(rand.NewPCG(seed+i, uint64(len(name))))) })
		}
		for range 8 {
			s.tasks.Go(func() { s.slow(ctx, addr) })
		}
	}
	s.tasks.Go(func() { s.rudeSession(ctx, f.listeners()["control"], rand.New(rand.NewPCG(seed, 99))) })
	return s
}

func (s *siege) end() {
	s.stop()
	s.tasks.Wait()
}

func (s *siege) count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[name]++
}

// rude tries one rudeness after the other.
func (s *siege) rude(ctx context.Context, addr string, r *rand.Rand) {
	for i := r.IntN(len(rudenesses)); ctx.Err() == nil; i++ {
		way := rudenesses[i%len(rudenesses)]
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			continue // a full backlog or the end
		}
		_ = c.SetDeadline(time.Now().Add(hold))
		way.do(c, r)
		c.Close()
		s.count(way.name)
	}
}

// slow sends a header one byte at a time, and begins again when it is thrown out.
func (s *siege) slow(ctx context.Context, addr string) {
	const header = "GET / HTTP/1.1\r\nX-Slow: aaaaaaaaaa"
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		for i := 0; ; i++ {
			if _, err := c.Write([]byte{header[min(i, len(header)-1)]}); err != nil || ctx.Err() != nil {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		c.Close()
		s.count("one byte at a time")
	}
}

// bytesCodec hands gRPC bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "tandem" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesCodec) Unmarshal(d mem.BufferSlice, v any) error {
	*v.(*[]byte) = d.Materialize()
	return nil
}

// rudeSession speaks gRPC well, and puts garbage into its frames.
func (s *siege) rudeSession(ctx context.Context, addr string, r *rand.Rand) {
	for ctx.Err() == nil {
		cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
		if err != nil {
			continue
		}
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		st, err := cc.NewStream(once, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/tandem.control.v1.Control/Session")
		for i := 0; err == nil && i < 200; i++ {
			frame := noise(r, r.IntN(200))
			if len(frame) > 6 && i%2 > 0 {
				binary.LittleEndian.PutUint32(frame, control.Guard)
				frame[4], frame[5] = byte(r.IntN(24)), control.Version
			}
			err = st.SendMsg(frame)
		}
		cancel()
		cc.Close()
		s.count("garbage in a session")
	}
}

// load sends streams one after the other, four at a time, until stopped, and
// demands that each answer is complete and right. It returns how many there were.
func (f *fleet) load(ctx context.Context) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for lane := range 4 {
		wg.Go(func() {
			for i := lane; ctx.Err() == nil; i += 4 {
				q := question{prompt: f.engine.prompt(300, i), tokens: 20, label: "load-" + strconv.Itoa(i)}
				within, cancel := context.WithTimeout(context.Background(), patience)
				a := ask(within, f.router.url, q)
				cancel()
				if err := a.honest(f.known(q)); err != nil || !a.done {
					f.t.Errorf("%s: want a complete answer: %v, %v", q.label, a, err)
					return
				}
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return n
}

func TestGarbageOnEveryPortUnderLoadHarmsNothing(t *testing.T) {
	f := newFleet(t, spec{engine: simEngine{tokenTime: "20us", callTime: "1ms"}})
	b := f.baseline()
	s := f.besiege()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	n := f.load(ctx)
	s.end()
	ended := time.Now()
	f.alive()
	t.Logf("%d requests were answered right beside %v", n, s.done)
	if n < 20 {
		t.Errorf("only %d requests: that is no load", n)
	}
	for _, way := range append(rudenesses, rudeness{name: "one byte at a time"}, rudeness{name: "garbage in a session"}) {
		if s.done[way.name] == 0 {
			t.Errorf("%s: never done", way.name)
		}
	}
	if d := f.drops(); d.Malformed == 0 || d.Foreign == 0 {
		t.Errorf("prefill's control counts %+v: the garbage is not in it", d)
	}
	f.canary()
	b.held(ended, freed+time.Second)
	b.settled(ended)
}

// drops reads what prefill's control port has dropped.
func (f *fleet) drops() control.Drop {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	_, body, err := watch.Get(ctx, f.prefill.url+"/debug/peers")
	var v struct{ Drops control.Drop }
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return v.Drops
}
