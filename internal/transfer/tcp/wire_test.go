package tcp

import (
	"bytes"
	"testing"

	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

func sample() transfer.Header {
	return transfer.Header{ChunkID: kv.ChunkID{Room: 77, Gen: 88, Seq: 3, P0: 768, P1: 1024, Layout: 0xABCDEF}, Bytes: 1 << 20, Sum: 0xFEED, Last: true}
}

func TestFramesHaveTheBytesOfTheirLayout(t *testing.T) {
	b := make([]byte, chunkSize)
	putChunk(b, 0x1122334455667788, sample())
	want := append([]byte("TDMD"), typeChunk, version, flagSet, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11)
	if !bytes.Equal(b[:prefixSize], want) {
		t.Errorf("prefix % x, want % x", b[:prefixSize], want)
	}
	if b[16] != 77 || b[24] != 88 || b[32] != 0xEF || b[42] != 0x10 || b[48] != 0xED || b[56] != 3 || b[61] != 3 || b[65] != 4 {
		t.Errorf("chunk % x", b)
	}
	from, h, err := decodeChunk(b)
	if err != nil || from != 0x1122334455667788 || h != sample() {
		t.Errorf("decoded %v %+v, %v", from, h, err)
	}
}

// FuzzDecode: every decoder is total, and takes only what its encoder makes.
func FuzzDecode(f *testing.F) {
	b := make([]byte, chunkSize)
	putChunk(b, 5, sample())
	f.Add(b)
	b = make([]byte, helloSize)
	putHello(b, hello{sink: 1, source: 2, window: 3})
	f.Add(b)
	f.Add(appendReply(nil, reply{typ: typeCredit, from: 1, value: 9}))
	f.Add(appendReply(nil, reply{typ: typeAck, from: 1, room: 2, gen: 3, value: 4}))
	b = make([]byte, answerSize)
	putAnswer(b, 5, true)
	f.Add(b)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(again []byte) {
			t.Helper()
			if !bytes.Equal(again, b) {
				t.Fatalf("% x decodes as % x", b, again)
			}
		}
		again := make([]byte, len(b))
		if h, err := decodeHello(b); err == nil {
			putHello(again, h)
			same(again)
		}
		if from, h, err := decodeChunk(b); err == nil {
			putChunk(again, from, h)
			same(again)
		}
		if r, err := decodeReply(b); err == nil {
			same(appendReply(nil, r))
		}
		decodeAnswer(b)
	})
}
