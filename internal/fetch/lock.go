package fetch

import (
	"context"
	"fmt"
	"os"
	"time"
)

// lockPoll is how often a waiting process tries again. Waiting is rare and long
// (another process downloads), so a system call ten times a second costs nothing.
const lockPoll = 100 * time.Millisecond

// Lock takes an exclusive lock on the file at path, which it creates if needed and
// leaves in place. If another process, or another holder in this one, has it, Lock
// calls waiting once (if not nil) and waits until ctx ends. The caller must call
// unlock. The lock also ends with the process, however that ends.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		taken, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if taken {
			return func() { f.Close() }, nil
		}
		if first && waiting != nil {
			waiting()
		}
		timer := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			f.Close()
			return nil, fmt.Errorf("waiting for another process that holds %s: %w", path, context.Cause(ctx))
		case <-timer.C:
		}
	}
}
