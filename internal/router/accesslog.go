package router

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/tandem-llm/tandem/internal/svc"
)

const (
	// DefaultAccessLogBytes is when the access log's file is put aside: some 100,000
	// requests. With the one put aside before there are never more than twice as many.
	DefaultAccessLogBytes = 64 << 20
	// accessLogQueue lines wait for the disk, about 1 KiB each: a storm of 10,000 ends
	// in one instant.
	accessLogQueue = 32 << 10
)

// accessLog appends the record of every ended request to a file, a JSON document a
// line. One loop writes; a request's end never waits for the disk. Lines that cannot be
// queued or written are counted.
type accessLog struct {
	path  string
	most  int64 // bytes of the file; then it becomes path.1
	log   *slog.Logger
	lines chan []byte
	lost  atomic.Uint64

	file *os.File // from here on the loop's own
	size int64
	told bool // of the last failure
}

// newAccessLog opens the file at once, so that a path that cannot be is told at the
// start. The caller owes run.
func newAccessLog(path string, most int64, log *slog.Logger) (*accessLog, error) {
	a := &accessLog{path: path, most: most, log: log, lines: make(chan []byte, accessLogQueue)}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("the access log cannot be opened: %w", err)
	}
	return a, nil
}

func (a *accessLog) open() error {
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // labels are the clients' words
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	a.file, a.size = f, st.Size()
	return nil
}

// add queues a record's line. It never blocks.
func (a *accessLog) add(r Record) {
	line, err := json.Marshal(r)
	if err != nil { // a float that JSON cannot hold: there is none
		a.lost.Add(1)
		return
	}
	select {
	case a.lines <- append(line, '\n'):
	default:
		a.lost.Add(1)
	}
}

// run writes until ctx ends, then what is queued still, and closes the file.
func (a *accessLog) run(ctx context.Context, l *svc.Loop) error {
	for {
		l.Beat()
		select {
		case line := <-a.lines:
			a.write(line)
			l.Progress()
			continue
		case <-ctx.Done():
		}
		for {
			select {
			case line := <-a.lines:
				a.write(line)
				continue
			default:
			}
			break
		}
		if a.file == nil {
			return nil
		}
		return a.file.Close()
	}
}

// write appends one line; a file that is full is put aside first.
func (a *accessLog) write(line []byte) {
	err := a.make(int64(len(line)))
	if err == nil {
		var n int
		n, err = a.file.Write(line)
		a.size += int64(n)
	}
	if err == nil {
		a.told = false
		return
	}
	a.lost.Add(1)
	if !a.told { // a full disk is told once, not for every request
		a.told = true
		a.log.Warn("the access log cannot be written: requests will be missing in it", "err", err)
	}
}

// make sees to it that there is a file with room for n bytes.
func (a *accessLog) make(n int64) error {
	if a.file != nil && (a.size == 0 || a.size+n <= a.most) {
		return nil
	}
	if a.file != nil {
		_ = a.file.Close() // every line has been written or counted
		a.file = nil
		if err := os.Rename(a.path, a.path+".1"); err != nil {
			return err
		}
	}
	return a.open()
}
