package fault

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"

	"github.com/tandem-llm/tandem/internal/id"
)

// The data plane's frames as transfer/tcp/wire.go describes them.
const (
	dataGuard  = 'T' | 'D'<<8 | 'M'<<16 | 'D'<<24
	helloSize  = 64
	answerSize = 16
	chunkSize  = 72
	replySize  = 40
	// maxPayload of one chunk that the proxy carries; the tests' are below 1 MiB.
	maxPayload = 64 << 20
	// rawSize is how much of what is no frame is passed on at once.
	rawSize = 4 << 10
)

var dataNames = [...]string{1: "HELLO", "ANSWER", "CHUNK", "CREDIT", "ACK"}

// serveData accepts decode's data connections.
func (p *Proxy) serveData(ctx context.Context) {
	for {
		c, err := p.lis[Data].Accept()
		if err != nil {
			return
		}
		p.g.Task("data link", func(context.Context) { p.dataLink(ctx, c) })
	}
}

func (p *Proxy) dataLink(ctx context.Context, c net.Conn) {
	defer c.Close()
	far, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", p.target.Data)
	if err != nil {
		return
	}
	defer far.Close()
	sides := [dirs]*conn{{Conn: far}, {Conn: c}}
	send := func(c *conn) func([]byte) error {
		return func(b []byte) error {
			_, err := c.Write(b)
			return err
		}
	}
	l := p.join(Data, &end{sides[ToPrefill], send(sides[ToPrefill])}, &end{sides[ToDecode], send(sides[ToDecode])})
	if l == nil {
		return
	}
	// What goes to one side is read from the other.
	readers := [dirs]*dataReader{{r: bufio.NewReader(c), dir: ToPrefill}, {r: bufio.NewReader(far), dir: ToDecode}}
	l.run(func(d Dir) (Frame, error) { return readers[d].next() })
}

// dataReader cuts one direction's bytes into frames.
type dataReader struct {
	r      *bufio.Reader
	dir    Dir
	opened bool // the first frame is over
	raw    bool // it was no frame: from there on nobody can know
}

func (r *dataReader) next() (Frame, error) {
	size := [2][2]int{{helloSize, replySize}, {answerSize, chunkSize}}[r.dir][map[bool]int{true: 1}[r.opened]]
	f := Frame{Point: Point{Data, r.dir, "GARBAGE"}}
	head, err := r.r.Peek(min(size, answerSize))
	if err != nil && len(head) == 0 {
		return f, err
	}
	if r.raw = r.raw || len(head) < answerSize || binary.LittleEndian.Uint32(head) != dataGuard || int(head[4]) >= len(dataNames); r.raw {
		b := make([]byte, rawSize)
		n, err := r.r.Read(b)
		f.bytes, f.Size = b[:n], n
		return f, err
	}
	r.opened = true
	b := make([]byte, size)
	if _, err := io.ReadFull(r.r, b); err != nil {
		return f, err
	}
	f.Type = dataNames[b[4]]
	if f.Type == "CHUNK" || f.Type == "ACK" {
		f.Room = id.Room(binary.LittleEndian.Uint64(b[16:]))
	}
	switch f.Type {
	case "ACK":
		f.Seq = binary.LittleEndian.Uint32(b[32:])
	case "CHUNK":
		f.Seq, f.Last = binary.LittleEndian.Uint32(b[56:]), b[6]&1 != 0
		n := binary.LittleEndian.Uint64(b[40:])
		if n > maxPayload {
			return f, io.ErrShortBuffer
		}
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(r.r, b[chunkSize:]); err != nil {
			return f, err
		}
	}
	f.bytes, f.Size = b, len(b)
	return f, nil
}
