package supervise

import "time"

// backoff is the pause before a child's next start. The zero value is ready.
type backoff struct{ pause time.Duration }

// next returns the pause after a run that lasted that long.
func (b *backoff) next(lived time.Duration) time.Duration {
	if lived >= Peace {
		b.pause = 0
	}
	b.pause = min(max(2*b.pause, MinPause), MaxPause)
	return b.pause
}
