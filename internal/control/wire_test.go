package control

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

var update = flag.Bool("update", false, "write the golden vectors")

func sender(f Frame) Frame {
	f.From, f.Of = 0x1122334455667788, 1
	return f
}

func roomFrame(m room.Message) Frame {
	return sender(Frame{Type: roomBase + FrameType(m.Type), Message: m})
}

// golden frames: one of each type. A change of testdata is a change of Version.
func golden() map[string]Frame {
	hello := sender(Frame{Type: Hello, Fenced: 0x99})
	hello.Rank, hello.Of = 1, 2
	hello.Peer = Peer{Incarnation: hello.From, Rank: 1, Of: 2, Layout: 0xABCDEF, Describe: "llama 24 layers", Build: "cpu v0.5.0",
		Transports: []Transport{{Name: "tcp", Addr: "10.0.0.1:9001", Ticket: [32]byte{1, 2, 3}}, {Name: "shm", Addr: "/run/t.sock"}}}
	return map[string]Frame{
		"hello":     hello,
		"refuse":    sender(Frame{Type: Refuse, Cause: room.Cause{Code: room.LayoutMismatch, Detail: "7 here, 8 there"}}),
		"ping":      sender(Frame{Type: Ping, Seq: 5}),
		"pong":      sender(Frame{Type: Pong, Seq: 5}),
		"drain":     sender(Frame{Type: Drain}),
		"ready":     roomFrame(room.Message{Type: room.Ready, Room: 77, Gen: 88, Tokens: 1000, Have: 256, Window: 1 << 23, Digest: room.Digest{9, 8, 7}}),
		"commit":    roomFrame(room.Message{Type: room.Commit, Room: 77, Gen: 88, Chunks: 4, Sum: 0xFEEDFACE}),
		"abort":     roomFrame(room.Message{Type: room.Abort, Room: 77, Cause: room.Cause{Code: room.ClientGone, Detail: "left"}}),
		"abort_ack": roomFrame(room.Message{Type: room.AbortAck, Room: 77, Gen: 88}),
		"fail":      roomFrame(room.Message{Type: room.Fail, Room: 77, Gen: 88, Cause: room.Cause{Code: room.Corrupt, Detail: "chunk 3"}}),
	}
}

func TestEveryFrameHasItsGoldenBytes(t *testing.T) {
	for name, f := range golden() {
		path := filepath.Join("testdata", "golden", name+".hex")
		b := Encode(f)
		if *update {
			os.MkdirAll(filepath.Dir(path), 0o755)
			os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != strings.TrimSpace(string(want)) {
			t.Errorf("%s: bytes %s, golden %s", name, got, want)
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%s: decoded %+v, %v; want %+v", name, got, err, f)
		}
	}
}

func TestEveryRejectHasItsReason(t *testing.T) {
	ping := Encode(golden()["ping"])
	ready := Encode(golden()["ready"])
	change := func(b []byte, at int, v byte) []byte {
		b = bytes.Clone(b)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want Reason
	}{
		"nothing":              {nil, Short},
		"a byte":               {[]byte{1}, Short},
		"HTTP":                 {[]byte("GET /health HTTP/1.1\r\nHost: prefill:8998\r\n\r\n"), Foreign},
		"another version":      {change(ping, 5, 2), Versions},
		"more than the limit":  {make([]byte, MaxMessage+1), Oversize},
		"a byte missing":       {ping[:len(ping)-1], Length},
		"a byte too many":      {append(bytes.Clone(ping), 0), Length},
		"a length of 2^32-1":   {change(change(change(change(ping, 34, 255), 35, 255), 36, 255), 37, 255), Length},
		"an unknown type":      {change(ping, 4, 200), Unknown},
		"rank beyond of":       {change(ping, 6, 7), Identity},
		"of no ranks":          {change(ping, 8, 0), Identity},
		"no incarnation":       {append(append(bytes.Clone(ping[:10]), make([]byte, 8)...), ping[18:]...), Identity},
		"a PING about a room":  {change(ping, 18, 1), Identity},
		"a negative room":      {change(ready, 25, 255), Identity},
		"READY without tokens": {change(change(ready, 38, 0), 39, 0), Payload},
		"have beyond tokens":   {change(ready, 44, 1), Payload},
	} {
		_, err := Decode(c.b)
		var r *RejectError
		if !errors.As(err, &r) || r.Reason != c.want {
			t.Errorf("%s: %v, want reason %v", name, err, c.want)
		}
	}
}

func TestWhatEncodeReturnsDecodeAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := sender(Frame{Type: FrameType(rapid.SampledFrom([]FrameType{Hello, Refuse, roomBase + FrameType(room.Abort), roomBase + FrameType(room.Fail)}).Draw(t, "type"))})
		// texts a caller may hand over: too long, not UTF-8, odd codes
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 6000).Draw(t, "text"))
		f.Cause = room.Cause{Code: room.Code(rapid.String().Draw(t, "code")), Detail: text}
		f.Message = room.Message{Type: room.Type(f.Type - roomBase), Room: id.Room(rapid.Int64Range(1, 1<<62).Draw(t, "room")), Cause: f.Cause}
		f.Peer.Describe, f.Peer.Build = text, text
		if Encode(f) == nil {
			t.Fatalf("%v has no encoding", f.Type)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, g := range golden() {
		f.Add(Encode(g))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := Decode(b)
		if err != nil {
			var r *RejectError
			if !errors.As(err, &r) {
				t.Fatalf("a reject without a reason: %v", err)
			}
			return
		}
		if again := Encode(fr); !bytes.Equal(again, b) {
			t.Fatalf("two encodings of one frame:\n%x\n%x", b, again)
		}
	})
}
