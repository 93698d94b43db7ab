package watch

import (
	"fmt"
	"slices"
)

const (
	gaugeFDs        = "process_open_fds"
	gaugeGoroutines = "go_goroutines"
)

// held are the gauges of what requests hold: rooms, queues, KV cells, arena
// bytes, chunks, legs. At rest they are what they were before, exactly.
var held = []string{
	"sglang:num_prefill_bootstrap_queue_reqs",
	"sglang:num_prefill_inflight_queue_reqs",
	"sglang:num_decode_prealloc_queue_reqs",
	"sglang:num_decode_transfer_queue_reqs",
	"sglang:num_queue_reqs",
	"sglang:num_running_reqs",
	"tandem_requests_live",
	"tandem_rooms_ended_holding_memory",
	"tandem_kv_cells_held",
	"tandem_arena_bytes_held",
	"tandem_arena_leases",
	"tandem_transfer_queued_chunks",
	"tandem_transfer_links",
	"tandem_ready",
	"tandem_router_in_flight",
	"tandem_router_worker_in_flight",
	"tandem_router_worker_usable",
	"tandem_router_abort_queue",
	"tandem_router_breaker_state",
}

// steady are those of held that are not 0 at rest.
var steady = []string{"tandem_transfer_links", "tandem_ready", "tandem_router_worker_usable"}

// footprint are the gauges of the process itself, and by how much each may be
// above its baseline: a connection that a health check or a scrape has open at
// the moment of one of the two scrapes.
var footprint = map[string]float64{gaugeGoroutines: 6, gaugeFDs: 4}

// Off compares with a baseline and says which gauges of what requests hold
// differ from it, one line each.
func (s Snapshot) Off(baseline Snapshot) []string {
	return s.compare(baseline, func(name string, was, is float64) bool {
		return slices.Contains(held, name) && is != was
	})
}

// Busy says which of the gauges of what requests hold show that something is in
// progress.
func (s Snapshot) Busy() []string {
	var lines []string
	for process, m := range s {
		for series, v := range m {
			if name := base(series); v != 0 && slices.Contains(held, name) && !slices.Contains(steady, name) {
				lines = append(lines, fmt.Sprintf("%s: %s is %g", process, series, v))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// Grown says which gauges of the processes themselves, goroutines and
// descriptors, are above the baseline.
func (s Snapshot) Grown(baseline Snapshot) []string {
	return s.compare(baseline, func(name string, was, is float64) bool {
		most, ok := footprint[name]
		return ok && is > was+most
	})
}

func (s Snapshot) compare(baseline Snapshot, off func(name string, was, is float64) bool) []string {
	var lines []string
	for process, was := range baseline {
		is := s[process]
		for series, v := range was {
			if off(base(series), v, is[series]) {
				lines = append(lines, fmt.Sprintf("%s: %s is %g, was %g", process, series, is[series], v))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// failureOutcomes are the endings that count as failures.
var failureOutcomes = []string{"timeout", "peer_lost", "internal"}

// Failures counts the requests that ended as failures, and the failures charged
// to workers, by process. An abort storm must not change it.
func (s Snapshot) Failures() map[string]float64 {
	out := map[string]float64{}
	for process, m := range s {
		out[process] = m.Sum("tandem_router_failures_charged_total")
		for _, o := range failureOutcomes {
			out[process] += m.Sum("tandem_requests_total", `outcome="`+o+`"`) + m.Sum("tandem_router_requests_total", `outcome="`+o+`"`)
		}
	}
	return out
}

// Breakers returns the highest breaker state the router reports: 0 if all are
// closed.
func (s Snapshot) Breakers() float64 {
	worst := 0.0
	for _, m := range s {
		for series, v := range m {
			if base(series) == "tandem_router_breaker_state" {
				worst = max(worst, v)
			}
		}
	}
	return worst
}
