package watch

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Metrics is one scrape of a process: "name" or "name{labels}" → value.
type Metrics map[string]float64

// Parse reads Prometheus's text form. Lines it does not understand are skipped.
func Parse(text []byte) Metrics {
	m := Metrics{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		cut := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || cut < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(line[cut+1:], 64); err == nil {
			m[line[:cut]] = v
		}
	}
	return m
}

// Sum adds the series of a name whose labels contain all of those given, each
// written like outcome="aborted".
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
next:
	for series, v := range m {
		if base(series) != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue next
			}
		}
		sum += v
	}
	return sum
}

func base(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}

// Process is one process to watch.
type Process struct {
	Name string // for people
	URL  string // of its HTTP port
	PID  int    // 0 if unknown: then only /metrics tells of its descriptors
}

// Snapshot is the metrics of every process at about one moment.
type Snapshot map[string]Metrics

// client keeps no connection: one that stays open would be in the gauges.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// Get reads one small answer of a process.
func Get(ctx context.Context, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 256<<20))
	return resp.StatusCode, body, err
}

// Scrape reads the metrics of all processes, all at once.
func Scrape(ctx context.Context, processes []Process) (Snapshot, error) {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		all    = Snapshot{}
		failed error
	)
	for _, p := range processes {
		wg.Go(func() {
			status, body, err := Get(ctx, p.URL+"/metrics")
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("status %d", status)
			}
			m := Parse(body)
			if _, told := m[gaugeFDs]; err == nil && !told && p.PID > 0 {
				if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID)); err == nil {
					m[gaugeFDs] = float64(len(fds))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = fmt.Errorf("metrics of %s: %w", p.Name, err)
			}
			all[p.Name] = m
		})
	}
	wg.Wait()
	return all, failed
}
