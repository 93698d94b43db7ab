package control

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// The whole wire. One gRPC message is one frame: a header of 38 bytes and a
// payload. Integers are little-endian; "str" is a u16 length and that many bytes
// of UTF-8.
//
//	 0  guard       u32  "TDMC"
//	 4  type        u8   see FrameType
//	 5  version     u8   1
//	 6  rank        u16  of the sender
//	 8  of          u16  ranks of the sender's worker, at least 1
//	10  incarnation u64  of the sender, never 0
//	18  room        i64  0 in a session's own frames
//	26  generation  u64  0 in a session's own frames, and where room.Message allows it
//	34  length      u32  of the payload
//
// Payloads:
//
//	HELLO      layout u64, fenced u64, str describe, str build, u8 count, count × {str name, str addr, ticket [32]}
//	           fenced: the incarnation of the receiver that the sender has fenced, 0 if none;
//	           what the two had with each other before this HELLO is void
//	REFUSE     str code, str detail
//	PING, PONG seq u64; all ones: goodbye, the sender stops once it has the PONG
//	DRAIN      nothing
//	READY      tokens i32, have i32, window i64, digest [16]
//	COMMIT     chunks u32, sum u64
//	ABORT      str code, str detail
//	ABORT_ACK  nothing
//	FAIL       str code, str detail
const (
	// Guard opens every frame: "TDMC" as a little-endian u32.
	Guard uint32 = 'T' | 'D'<<8 | 'M'<<16 | 'C'<<24
	// Version is the only version this build speaks.
	Version = 1
	// HeaderSize is the length of a frame's header.
	HeaderSize = 4 + 1 + 1 + 2 + 2 + 8 + 8 + 8 + 4
	// MaxMessage is the largest frame, header included: the largest real one
	// (HELLO with eight transports) is below 10 KiB.
	MaxMessage = 64 << 10
	// MaxTransports a HELLO can offer; there are five data planes in the world
	// that we know of.
	MaxTransports = 8

	maxName     = 32      // bytes of a transport's name
	maxAddr     = 512     // bytes of an address; a unix path has 108
	maxDescribe = 4 << 10 // bytes of a layout in words
	maxBuild    = 256     // bytes of a build tag
	maxCode     = 64      // bytes of a cause's code
	maxDetail   = 4 << 10 // bytes of a cause's detail; longer ones are cut by the sender
)

// FrameType is a frame's type byte. A room message's is roomBase + room.Type.
type FrameType uint8

const (
	Hello    FrameType = 1 + iota // who I am, what I hold; the first frame each way
	Refuse                        // no session, and why
	Ping                          // are you there
	Pong                          // I am
	Drain                         // I take no new rooms from now on
	roomBase FrameType = 16
)

var frameNames = [...]string{Hello: "HELLO", Refuse: "REFUSE", Ping: "PING", Pong: "PONG", Drain: "DRAIN"}

// String returns the type's name as the documents spell it.
func (t FrameType) String() string {
	if t.room() {
		return room.Type(t - roomBase).String()
	}
	if int(t) < len(frameNames) && frameNames[t] != "" {
		return frameNames[t]
	}
	return fmt.Sprintf("FrameType(%d)", uint8(t))
}

func (t FrameType) room() bool {
	return t >= roomBase+FrameType(room.Ready) && t <= roomBase+FrameType(room.Fail)
}

// Frame is one decoded frame. Which fields are meaningful depends on Type.
type Frame struct {
	Type     FrameType
	From     id.Incarnation
	Rank, Of int

	Message room.Message   // READY, COMMIT, ABORT, ABORT_ACK, FAIL
	Peer    Peer           // HELLO, without Addr
	Fenced  id.Incarnation // HELLO
	Seq     uint64         // PING, PONG
	Cause   room.Cause     // REFUSE
}

// Reason says why bytes are no frame.
type Reason uint8

const (
	Short    Reason = iota // shorter than a header
	Foreign                // the guard is another protocol's
	Versions               // another version of this protocol
	Oversize               // longer than MaxMessage
	Length                 // the payload's length is not what the header says
	Unknown                // no such type
	Identity               // incarnation, rank, room or generation cannot be
	Payload                // the payload is not what its type says
	reasons
)

var reasonNames = [reasons]string{"short", "foreign_guard", "version", "oversize", "length", "unknown_type", "identity", "payload"}

// String returns the reason's metric label.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// RejectError is a frame that was not accepted.
type RejectError struct {
	Reason Reason
	Detail string // names the value and the limit
}

// Error says what was wrong.
func (e *RejectError) Error() string { return e.Reason.String() + ": " + e.Detail }

func reject(r Reason, format string, args ...any) error {
	return &RejectError{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// Decode reads one frame. It is total: any bytes give a frame or a *RejectError.
// The frame shares no memory with b.
func Decode(b []byte) (Frame, error) {
	var f Frame
	if len(b) > MaxMessage {
		return f, reject(Oversize, "%d bytes, at most %d", len(b), MaxMessage)
	}
	le := binary.LittleEndian
	if len(b) >= 4 && le.Uint32(b) != Guard {
		return f, reject(Foreign, "guard %08x, want %08x", le.Uint32(b), Guard)
	}
	if len(b) < HeaderSize {
		return f, reject(Short, "%d bytes, a header has %d", len(b), HeaderSize)
	}
	if b[5] != Version {
		return f, reject(Versions, "version %d, this build speaks %d", b[5], Version)
	}
	f.Type = FrameType(b[4])
	f.Rank, f.Of = int(le.Uint16(b[6:])), int(le.Uint16(b[8:]))
	f.From = id.Incarnation(le.Uint64(b[10:]))
	rm, gen := id.Room(le.Uint64(b[18:])), id.Generation(le.Uint64(b[26:]))
	n := le.Uint32(b[34:])
	if uint64(n) != uint64(len(b)-HeaderSize) {
		return f, reject(Length, "header says %d payload bytes, there are %d", n, len(b)-HeaderSize)
	}
	if f.From == 0 || f.Of == 0 || f.Rank >= f.Of {
		return f, reject(Identity, "incarnation %v, rank %d of %d", f.From, f.Rank, f.Of)
	}
	r := reader{b: b[HeaderSize:]}
	if f.Type.room() {
		f.Message = room.Message{Type: room.Type(f.Type - roomBase), Room: rm, Gen: gen}
		if err := identity(f.Message); err != nil {
			return f, err
		}
		return f, r.message(&f.Message)
	}
	if rm != 0 || gen != 0 {
		return f, reject(Identity, "%v with room %v, generation %v", f.Type, rm, gen)
	}
	switch f.Type {
	case Hello:
		return f, r.hello(&f)
	case Refuse:
		r.cause(&f.Cause)
	case Ping, Pong:
		f.Seq = r.u64()
	case Drain:
	default:
		return f, reject(Unknown, "type %d", uint8(f.Type))
	}
	return f, r.end(f.Type)
}

func identity(m room.Message) error {
	needsGen := m.Type == room.Ready || m.Type == room.Commit
	if m.Room <= 0 || needsGen && m.Gen == 0 {
		return reject(Identity, "%v with room %v, generation %v", m.Type, m.Room, m.Gen)
	}
	return nil
}

// reader takes a payload apart. After the first fault every read returns zero
// and end reports it.
type reader struct {
	b   []byte
	bad string
}

func (r *reader) take(n int) []byte {
	if r.bad == "" && len(r.b) < n {
		r.bad = fmt.Sprintf("ends %d bytes early", n-len(r.b))
	}
	if r.bad != "" {
		return make([]byte, n) // n is a constant or already known to be there
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) str(what string, limit int) string {
	n := int(binary.LittleEndian.Uint16(r.take(2)))
	switch {
	case r.bad != "":
		return ""
	case n > limit:
		r.bad = fmt.Sprintf("%s of %d bytes, at most %d", what, n, limit)
	case n > len(r.b):
		r.bad = fmt.Sprintf("%s ends %d bytes early", what, n-len(r.b))
	case !utf8.Valid(r.b[:n]):
		r.bad = what + " is not UTF-8"
	default:
		return string(r.take(n))
	}
	return ""
}

func (r *reader) cause(c *room.Cause) {
	c.Code = room.Code(r.str("code", maxCode))
	c.Detail = r.str("detail", maxDetail)
	if r.bad == "" && !validCode(c.Code) {
		r.bad = fmt.Sprintf("code %q", c.Code)
	}
}

// validCode keeps a peer's code harmless where it becomes a metric label.
func validCode(c room.Code) bool {
	for _, b := range []byte(c) {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '_' {
			return false
		}
	}
	return c != "" && len(c) <= maxCode
}

func (r *reader) end(t FrameType) error {
	if r.bad == "" && len(r.b) > 0 {
		r.bad = fmt.Sprintf("has %d bytes too many", len(r.b))
	}
	if r.bad != "" {
		return reject(Payload, "%v: %s", t, r.bad)
	}
	return nil
}

func (r *reader) message(m *room.Message) error {
	switch m.Type {
	case room.Ready:
		m.Tokens, m.Have = int32(r.u32()), int32(r.u32())
		m.Window = int64(r.u64())
		copy(m.Digest[:], r.take(len(m.Digest)))
		if r.bad == "" && (m.Tokens < 1 || m.Have < 0 || m.Have >= m.Tokens || m.Window < 0) {
			r.bad = fmt.Sprintf("tokens %d, have %d, window %d", m.Tokens, m.Have, m.Window)
		}
	case room.Commit:
		m.Chunks, m.Sum = r.u32(), r.u64()
	case room.Abort, room.Fail:
		r.cause(&m.Cause)
	}
	return r.end(roomBase + FrameType(m.Type))
}

func (r *reader) hello(f *Frame) error {
	p := Peer{Incarnation: f.From, Rank: f.Rank, Of: f.Of}
	p.Layout = kv.Fingerprint(r.u64())
	f.Fenced = id.Incarnation(r.u64())
	p.Describe = r.str("layout in words", maxDescribe)
	p.Build = r.str("build tag", maxBuild)
	n := int(r.take(1)[0])
	if r.bad == "" && n > MaxTransports {
		r.bad = fmt.Sprintf("%d transports, at most %d", n, MaxTransports)
	}
	for i := 0; i < n && r.bad == ""; i++ {
		t := Transport{Name: r.str("transport's name", maxName), Addr: r.str("transport's address", maxAddr)}
		copy(t.Ticket[:], r.take(len(transfer.Ticket{})))
		p.Transports = append(p.Transports, t)
	}
	f.Peer = p
	return r.end(Hello)
}

// Encode returns the frame's bytes. A text that is too long is cut, one that is
// not UTF-8 is mended, so that what Encode returns Decode accepts; it returns
// nil for a frame that no Decode would take.
func Encode(f Frame) []byte {
	b := make([]byte, HeaderSize, HeaderSize+64)
	le := binary.LittleEndian
	le.PutUint32(b, Guard)
	b[4], b[5] = byte(f.Type), Version
	le.PutUint16(b[6:], uint16(f.Rank))
	le.PutUint16(b[8:], uint16(max(f.Of, 1)))
	le.PutUint64(b[10:], uint64(f.From))
	switch {
	case f.Type.room():
		le.PutUint64(b[18:], uint64(f.Message.Room))
		le.PutUint64(b[26:], uint64(f.Message.Gen))
		b = appendMessage(b, f.Message)
	case f.Type == Hello:
		b = appendHello(b, f)
	case f.Type == Refuse:
		b = appendCause(b, f.Cause)
	case f.Type == Ping, f.Type == Pong:
		b = le.AppendUint64(b, f.Seq)
	}
	le.PutUint32(b[34:], uint32(len(b)-HeaderSize))
	if _, err := Decode(b); err != nil {
		return nil
	}
	return b
}

func appendMessage(b []byte, m room.Message) []byte {
	le := binary.LittleEndian
	switch m.Type {
	case room.Ready:
		b = le.AppendUint32(b, uint32(m.Tokens))
		b = le.AppendUint32(b, uint32(m.Have))
		b = le.AppendUint64(b, uint64(m.Window))
		return append(b, m.Digest[:]...)
	case room.Commit:
		b = le.AppendUint32(b, m.Chunks)
		return le.AppendUint64(b, m.Sum)
	case room.Abort, room.Fail:
		return appendCause(b, m.Cause)
	}
	return b
}

func appendHello(b []byte, f Frame) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(f.Peer.Layout))
	b = le.AppendUint64(b, uint64(f.Fenced))
	b = appendStr(b, f.Peer.Describe, maxDescribe)
	b = appendStr(b, f.Peer.Build, maxBuild)
	b = append(b, byte(min(len(f.Peer.Transports), 255)))
	for _, t := range f.Peer.Transports {
		b = appendStr(b, t.Name, maxName)
		b = appendStr(b, t.Addr, maxAddr)
		b = append(b, t.Ticket[:]...)
	}
	return b
}

func appendCause(b []byte, c room.Cause) []byte {
	if !validCode(c.Code) {
		c.Code = room.Bug
	}
	b = appendStr(b, string(c.Code), maxCode)
	return appendStr(b, c.Detail, maxDetail)
}

func appendStr(b []byte, s string, limit int) []byte {
	if len(s) > limit {
		s = s[:limit]
	}
	s = strings.ToValidUTF8(s, "")
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}
