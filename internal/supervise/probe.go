package supervise

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxReason bounds what is quoted of an answer that says why it is not ready, in bytes.
const maxReason = 200

// direct asks without a proxy: the children are on this machine.
var direct = &http.Client{Transport: &http.Transport{}}

// probe returns nil if the address answers 200, and otherwise why not.
func probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true // a kept connection would look like a client when the child stops
	res, err := direct.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxReason))
	return fmt.Errorf("%s: %s %s", url, res.Status, strings.Join(strings.Fields(string(body)), " "))
}

// watch probes one run of a child until it is ready or ctx, the run's, ends. Each
// answer goes to the owner.
func (s *supervisor) watch(ctx context.Context, c *child, run int) {
	s.group.Task("probe", func(context.Context) {
		every := time.NewTicker(probeEvery)
		defer every.Stop()
		for {
			one, cancel := context.WithTimeout(ctx, probeTimeout)
			err := s.cfg.probe(one, c.Health)
			cancel()
			if ctx.Err() != nil || !s.send(probed{c, run, err}) || err == nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
		}
	})
}
