package tcp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// The whole wire. Integers are little-endian, every frame has a fixed length
// and begins with
//
//	0 guard u32 "TDMD" | 4 type u8 | 5 version u8 | 6 flags u8 | 7 zero u8 | 8 incarnation u64, of the sender
//
// The connection opens with
//
//	HELLO  sink → source  16 source u64 | 24 window u64 | 32 ticket [32]                      64 bytes
//	ANSWER source → sink  flags bit 0: accepted                                               16 bytes
//
// then the source sends
//
//	CHUNK                 16 room i64 | 24 generation u64 | 32 layout u64 | 40 bytes u64 |
//	                      48 sum u64 | 56 seq u32 | 60 p0 i32 | 64 p1 i32 | 68 zero u32       72 bytes, then the payload
//	                      flags bit 0: the last of its hand-over
//
// and the sink
//
//	CREDIT                16 zero | 24 zero | 32 bytes u64                                    40 bytes
//	ACK                   16 room i64 | 24 generation u64 | 32 seq u64                        40 bytes
//
// Credit: the source may send a chunk if that keeps what it has in flight (sent,
// not credited) within HELLO's window, or if nothing is in flight. The sink
// returns credit for every payload byte it reads, whatever becomes of it.
const (
	guard   uint32 = 'T' | 'D'<<8 | 'M'<<16 | 'D'<<24
	version        = 1

	prefixSize = 16
	helloSize  = 64
	answerSize = 16
	chunkSize  = 72
	replySize  = 40
)

const (
	typeHello = 1 + iota
	typeAnswer
	typeChunk
	typeCredit
	typeAck
)

const flagSet = 1 // the only flag there is: accepted, last

// MaxChunk is the longest payload a frame may announce: a whole recurrent state
// is far below it, and a length above it is no chunk.
const MaxChunk = 4 << 30

var le = binary.LittleEndian

type hello struct {
	sink, source id.Incarnation
	window       int64
	ticket       transfer.Ticket
}

// reply is a CREDIT or an ACK.
type reply struct {
	typ   byte
	from  id.Incarnation
	room  id.Room
	gen   id.Generation
	value uint64 // bytes, or seq
}

func putPrefix(b []byte, typ, flags byte, from id.Incarnation) {
	le.PutUint32(b, guard)
	b[4], b[5], b[6], b[7] = typ, version, flags, 0
	le.PutUint64(b[8:], uint64(from))
}

func prefix(b []byte, size int) (typ, flags byte, from id.Incarnation, err error) {
	switch {
	case len(b) != size:
		err = fmt.Errorf("frame of %d bytes, want %d", len(b), size)
	case le.Uint32(b) != guard:
		err = fmt.Errorf("guard %08x, want %08x", le.Uint32(b), guard)
	case b[5] != version:
		err = fmt.Errorf("version %d, this build speaks %d", b[5], version)
	case b[6]&^flagSet != 0 || b[7] != 0:
		err = fmt.Errorf("flags %02x%02x", b[6], b[7])
	default:
		return b[4], b[6], id.Incarnation(le.Uint64(b[8:])), nil
	}
	return 0, 0, 0, err
}

func putHello(b []byte, h hello) {
	putPrefix(b, typeHello, 0, h.sink)
	le.PutUint64(b[16:], uint64(h.source))
	le.PutUint64(b[24:], uint64(h.window))
	copy(b[32:], h.ticket[:])
}

func decodeHello(b []byte) (h hello, err error) {
	typ, flags, from, err := prefix(b, helloSize)
	if err != nil {
		return h, err
	}
	h.sink, h.source, h.window = from, id.Incarnation(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))
	copy(h.ticket[:], b[32:])
	if typ != typeHello || flags != 0 || h.sink == 0 || h.window <= 0 {
		return h, fmt.Errorf("HELLO with type %d, incarnation %v, window %d", typ, h.sink, h.window)
	}
	return h, nil
}

func putAnswer(b []byte, from id.Incarnation, ok bool) {
	var flags byte
	if ok {
		flags = flagSet
	}
	putPrefix(b, typeAnswer, flags, from)
}

func decodeAnswer(b []byte) (from id.Incarnation, ok bool, err error) {
	typ, flags, from, err := prefix(b, answerSize)
	if err == nil && typ != typeAnswer {
		err = fmt.Errorf("ANSWER with type %d", typ)
	}
	return from, flags == flagSet, err
}

func putChunk(b []byte, from id.Incarnation, h transfer.Header) {
	var flags byte
	if h.Last {
		flags = flagSet
	}
	putPrefix(b, typeChunk, flags, from)
	le.PutUint64(b[16:], uint64(h.Room))
	le.PutUint64(b[24:], uint64(h.Gen))
	le.PutUint64(b[32:], uint64(h.Layout))
	le.PutUint64(b[40:], uint64(h.Bytes))
	le.PutUint64(b[48:], h.Sum)
	le.PutUint32(b[56:], h.Seq)
	le.PutUint32(b[60:], uint32(h.P0))
	le.PutUint32(b[64:], uint32(h.P1))
	le.PutUint32(b[68:], 0)
}

func decodeChunk(b []byte) (from id.Incarnation, h transfer.Header, err error) {
	typ, flags, from, err := prefix(b, chunkSize)
	if err != nil {
		return from, h, err
	}
	n := le.Uint64(b[40:])
	if typ != typeChunk || n > MaxChunk || n > math.MaxInt || le.Uint32(b[68:]) != 0 {
		return from, h, fmt.Errorf("CHUNK with type %d, %d bytes of at most %d", typ, n, uint64(MaxChunk))
	}
	h = transfer.Header{
		ChunkID: kv.ChunkID{
			Room: id.Room(le.Uint64(b[16:])), Gen: id.Generation(le.Uint64(b[24:])),
			Seq: le.Uint32(b[56:]), P0: int32(le.Uint32(b[60:])), P1: int32(le.Uint32(b[64:])),
			Layout: kv.Fingerprint(le.Uint64(b[32:])),
		},
		Bytes: int(n), Sum: le.Uint64(b[48:]), Last: flags == flagSet,
	}
	return from, h, checkHeader(h)
}

// checkHeader holds for what is sent and for what is received.
func checkHeader(h transfer.Header) error {
	if h.Room <= 0 || h.Gen == 0 || h.P0 < 0 || h.P1 < h.P0 || h.Bytes < 0 || int64(h.Bytes) > MaxChunk {
		return fmt.Errorf("chunk of room %v, generation %v, positions [%d, %d), %d bytes", h.Room, h.Gen, h.P0, h.P1, h.Bytes)
	}
	return nil
}

func appendReply(b []byte, r reply) []byte {
	var f [replySize]byte
	putPrefix(f[:], r.typ, 0, r.from)
	le.PutUint64(f[16:], uint64(r.room))
	le.PutUint64(f[24:], uint64(r.gen))
	le.PutUint64(f[32:], r.value)
	return append(b, f[:]...)
}

func decodeReply(b []byte) (r reply, err error) {
	typ, flags, from, err := prefix(b, replySize)
	if err != nil {
		return r, err
	}
	r = reply{typ: typ, from: from, room: id.Room(le.Uint64(b[16:])), gen: id.Generation(le.Uint64(b[24:])), value: le.Uint64(b[32:])}
	credit := typ == typeCredit && r.room == 0 && r.gen == 0 && r.value > 0
	ack := typ == typeAck && r.room > 0 && r.gen != 0 && r.value <= math.MaxUint32
	if flags != 0 || !credit && !ack {
		return r, fmt.Errorf("reply with type %d, room %v, generation %v, value %d", typ, r.room, r.gen, r.value)
	}
	return r, nil
}
