package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// key names a chunk within one link.
type key struct {
	room id.Room
	gen  id.Generation
	seq  uint32
}

func keyOf(h transfer.Header) key { return key{h.Room, h.Gen, h.Seq} }

// tune sets what every data connection wants.
func tune(c net.Conn, stall time.Duration) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	t.SetNoDelay(true)
	t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: stall / 2, Interval: max(stall/10, time.Second), Count: 5})
	userTimeout(t, stall)
}

// stallSlices is how many deadlines in a row, each a part of the stall timeout,
// must pass without a byte: when our own process was stopped, one passes at
// once, and the peer is not to blame.
const stallSlices = 4

// writeAll writes all of bufs. It gives up when the peer takes no byte for
// stall; a slow one that takes some goes on.
func writeAll(c net.Conn, bufs *net.Buffers, stall time.Duration) error {
	for idle := 0; ; {
		c.SetWriteDeadline(time.Now().Add(stall / stallSlices))
		n, err := bufs.WriteTo(c)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case n > 0:
			idle = 0
		default:
			if idle++; idle == stallSlices {
				return errStalled
			}
		}
	}
}

// readFull reads exactly len(b) bytes, and says how many it got; like writeAll it
// minds progress only. canceled ends it, if not nil: who sets it also sets a read
// deadline that has passed.
func readFull(c net.Conn, b []byte, stall time.Duration, canceled *atomic.Bool) (got int, err error) {
	for idle := 0; got < len(b); {
		c.SetReadDeadline(time.Now().Add(stall / stallSlices))
		if canceled != nil && canceled.Load() { // after the deadline, or it would undo the wake-up
			return got, transfer.ErrCanceled
		}
		n, err := io.ReadFull(c, b[got:])
		got += n
		switch {
		case err == nil:
			return got, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return got, err
		case n > 0:
			idle = 0
		default:
			if idle++; idle == stallSlices {
				return got, errStalled
			}
		}
	}
	return got, nil
}

// counters are Stats as they grow.
type counters struct {
	chunks, bytes, discarded, malformed, refused atomic.Uint64
}

func (c *counters) stats() transfer.Stats {
	return transfer.Stats{Chunks: c.chunks.Load(), Bytes: c.bytes.Load(), Discarded: c.discarded.Load(),
		Malformed: c.malformed.Load(), Refused: c.refused.Load()}
}
