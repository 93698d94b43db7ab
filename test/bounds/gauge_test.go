package bounds

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// held are the gauges that must be at zero when nothing runs.
var held = []string{
	"tandem_requests_live", "tandem_rooms_ended_holding_memory", "tandem_kv_cells_held", "tandem_arena_bytes_held",
	"tandem_arena_leases", "tandem_transfer_queued_chunks", "tandem_engine_in_call_seconds",
	"sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_inflight_queue_reqs", "sglang:num_decode_prealloc_queue_reqs",
	"sglang:num_decode_transfer_queue_reqs", "sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:num_retracted_reqs",
	"tandem_router_in_flight", "tandem_router_worker_in_flight", "tandem_router_abort_queue",
}

// metrics reads a process's metrics; one with labels is there by its name and labels.
func (f *fleet) metrics(url string) map[string]float64 {
	f.t.Helper()
	resp, err := f.admin.Get(url + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s/metrics: %d", url, resp.StatusCode)
	}
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if i := strings.LastIndex(lines.Text(), "} "); i >= 0 {
			name, value = lines.Text()[:i+1], lines.Text()[i+2:]
		}
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			out[name] = v
		}
	}
	return out
}

// holds says what a process still holds, "" if nothing.
func (f *fleet) holds(url string) string {
	f.t.Helper()
	var what []string
	for name, v := range f.metrics(url) {
		bare, _, _ := strings.Cut(name, "{")
		for _, h := range held {
			if bare == h && v != 0 {
				what = append(what, fmt.Sprintf("%s %v", name, v))
			}
		}
	}
	return strings.Join(what, ", ")
}

// quiet says what the workers that live, and the router, still hold.
func (f *fleet) quiet() string {
	f.t.Helper()
	var what []string
	urls := []string{"http://" + routerIP + ":80"}
	for _, p := range f.all() {
		urls = append(urls, p.url())
	}
	for _, u := range urls {
		if h := f.holds(u); h != "" {
			what = append(what, u+": "+h)
		}
	}
	return strings.Join(what, "\n")
}

// tick is how exactly a time without an event of its own is measured.
const tick = 10 * time.Millisecond

// until waits in steps of a tick for something, and returns how long that took.
func (f *fleet) until(what string, most time.Duration, ok func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > most {
			f.t.Errorf("not within %v: %s", most, what)
			return time.Since(began)
		}
		pass(tick)
	}
	return time.Since(began)
}

// free waits until the processes hold nothing.
func (f *fleet) free(most time.Duration, ps ...*process) time.Duration {
	f.t.Helper()
	return f.until("all memory free", most, func() bool {
		for _, p := range ps {
			if f.holds(p.url()) != "" {
				return false
			}
		}
		return true
	})
}

// quiesce demands every gauge at its baseline within the promise's 10 s, and then a
// right answer.
func (f *fleet) quiesce(what string) {
	f.t.Helper()
	f.until("quiet "+what, 10*time.Second, func() bool { return f.quiet() == "" })
	if h := f.quiet(); h != "" {
		f.t.Errorf("%s: %s", what, h)
	}
}
