package fleet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Extra returns the URL of one more router in front of a pair, for loads that need
// more descriptors than one process may have.
func (f *Fleet) Extra(ctx context.Context, t Tandem, pair Pair) (string, error) {
	p, err := ports(1)
	if err != nil {
		return "", err
	}
	args := append([]string{"router", "--port", strconv.Itoa(p[0]), "--prefill", pair.Prefill, "--decode", pair.Decode}, drain...)
	if _, err := f.launch(ctx, nil, t.Path, args...); err != nil {
		return "", err
	}
	f.wait = append(f.wait, at(p[0]))
	return at(p[0]), nil
}

// find returns the process that listens for HTTP on a URL's port.
func (f *Fleet) find(url string) (int, error) {
	port := url[strings.LastIndexByte(url, ':')+1:]
	for i, p := range f.procs {
		if n := slices.Index(p.cmd.Args, "--port"); n > 0 && p.cmd.Args[n+1] == port {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no process of this fleet listens on %s", url)
}

// Signal sends a signal to the process at a URL.
func (f *Fleet) Signal(url string, sig os.Signal) error {
	i, err := f.find(url)
	if err != nil {
		return err
	}
	return f.procs[i].cmd.Process.Signal(sig)
}

// Again kills the process at a URL if it still runs, starts it with the arguments it had, and
// returns how long it took from its start until path answered 200.
func (f *Fleet) Again(ctx context.Context, url, path string) (time.Duration, error) {
	i, err := f.find(url)
	if err != nil {
		return 0, err
	}
	old := f.procs[i]
	_ = old.cmd.Process.Kill() // it may have ended already
	<-old.done
	f.procs = slices.Delete(f.procs, i, i+1)
	began := time.Now()
	if _, err := f.launch(ctx, nil, old.cmd.Path, old.cmd.Args[1:]...); err != nil {
		return 0, err
	}
	err = f.until(ctx, url+path, began)
	return time.Since(began), err
}

// until waits for a 200. began is only for the message.
func (f *Fleet) until(ctx context.Context, url string, began time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer 200 within %v\n%s", url, time.Since(began), f.Logs())
		case <-tick.C:
		}
	}
}
