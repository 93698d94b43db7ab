package worker

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/room"
)

// metrics are a worker's Prometheus metrics: SGLang's names for the queues, so
// that existing dashboards work, and tandem_… for the rest. Gauges are read when
// they are asked for.
type metrics struct {
	registry *prometheus.Registry
	outcomes *prometheus.CounterVec
	ttft     prometheus.Histogram
	e2e      prometheus.Histogram
	tokens   prometheus.Counter
	aborted  prometheus.Counter
	server   atomic.Pointer[Server]
	gauges   map[string]*prometheus.Desc
	counters map[string]*prometheus.Desc
	drops    *prometheus.Desc
}

// gaugeHelp names every gauge and says what it counts.
var gaugeHelp = map[string]string{
	"sglang:num_prefill_bootstrap_queue_reqs": "Prefill rooms without READY.",
	"sglang:num_prefill_inflight_queue_reqs":  "Prefill rooms that compute or transfer after READY.",
	"sglang:num_decode_prealloc_queue_reqs":   "Decode requests without KV cells.",
	"sglang:num_decode_transfer_queue_reqs":   "Decode rooms whose hand-over is not complete.",
	"sglang:num_queue_reqs":                   "Requests that have what they need and wait for the engine.",
	"sglang:num_running_reqs":                 "Requests that generate.",
	"tandem_requests_live":                    "Requests without an ending.",
	"tandem_rooms_ended_holding_memory":       "Rooms that have ended and whose memory is not all free.",
	"tandem_room_tombstones":                  "Ended rooms that are remembered.",
	"tandem_kv_cells_held":                    "KV cells that live sequences hold.",
	"tandem_kv_cells":                         "KV cells there are.",
	"tandem_arena_bytes_held":                 "Arena bytes under lease.",
	"tandem_arena_bytes":                      "Arena bytes there are.",
	"tandem_arena_leases":                     "Leases of the arena.",
	"tandem_arena_oldest_lease_seconds":       "Age of the oldest lease.",
	"tandem_transfer_queued_chunks":           "Chunks published and not settled.",
	"tandem_transfer_links":                   "Data connections that are open.",
	"tandem_engine_in_call_seconds":           "How long the library call in progress has run.",
	"sglang:num_retracted_reqs":               "Requests set aside until cells are free.",
	"tandem_ready":                            "1 if the worker takes requests.",
	"tandem_prefix_cache_cells":               "KV cells that only ended sequences have; given up when others need them.",
	"tandem_prefix_cache_sequences":           "Ended sequences whose KV is kept.",
}

// counterHelp names every counter that is read when it is asked for.
var counterHelp = map[string]string{
	"tandem_prefix_cache_hits_total":          "Sequences that started from another one's KV.",
	"tandem_prefix_cache_reused_tokens_total": "Prompt tokens that were neither computed nor imported, because their KV was there.",
	"tandem_prefix_cache_evicted_cells_total": "Cached KV cells given up for others.",
	"tandem_transfer_chunks_total":            "Chunks acknowledged (prefill) or taken (decode).",
	"tandem_transfer_bytes_total":             "Bytes of those.",
	"tandem_transfer_discarded_total":         "Chunks read and thrown away.",
	"tandem_transfer_malformed_total":         "Data connections closed because of bytes that are no frame.",
	"tandem_transfer_refused_total":           "Data connections refused: bad ticket, late handshake, too many.",
	"tandem_arena_misuse_total":               "Calls on leases that were gone: faults of ours, that changed nothing.",
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), gauges: make(map[string]*prometheus.Desc), counters: make(map[string]*prometheus.Desc)}
	m.outcomes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tandem_requests_total", Help: "Ended requests by outcome and cause."}, []string{"outcome", "code"})
	m.ttft = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tandem_time_to_first_token_seconds", Help: "From the request's arrival to its first token.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14)})
	m.e2e = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tandem_e2e_request_latency_seconds", Help: "From a request's arrival to its end, of those that ended ok.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 16)})
	m.tokens = prometheus.NewCounter(prometheus.CounterOpts{Name: "tandem_generated_tokens_total", Help: "Tokens generated."})
	m.aborted = prometheus.NewCounter(prometheus.CounterOpts{Name: "sglang:num_aborted_requests_total", Help: "Requests that ended aborted."})
	for name, help := range counterHelp {
		m.counters[name] = prometheus.NewDesc(name, help, nil, nil)
	}
	for name, help := range gaugeHelp {
		m.gauges[name] = prometheus.NewDesc(name, help, nil, nil)
	}
	m.drops = prometheus.NewDesc("tandem_drops_total", "What was dropped, by where (control: frames between workers; room: events of rooms) and reason.", []string{"at", "reason"}, nil)
	m.registry.MustRegister(m, m.outcomes, m.ttft, m.e2e, m.tokens, m.aborted, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// ended counts a request's one ending.
func (m *metrics) ended(c *flight.Record) {
	cause := c.Cause()
	m.outcomes.WithLabelValues(cause.Outcome().String(), api.Label(cause.Code)).Inc()
	if cause.Outcome() == room.Aborted {
		m.aborted.Inc()
	}
	first, total, tokens := c.Timing()
	m.tokens.Add(float64(tokens))
	if tokens > 0 {
		m.ttft.Observe(first.Seconds())
	}
	if cause.Outcome() == room.OK {
		m.e2e.Observe(total.Seconds())
	}
}

// Describe and Collect make metrics a prometheus.Collector of the gauges.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.gauges {
		ch <- d
	}
	for _, d := range m.counters {
		ch <- d
	}
	ch <- m.drops
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.server.Load()
	if s == nil {
		return
	}
	p := s.parts.Load()
	if p == nil {
		return
	}
	for name, v := range s.gauges(p) {
		ch <- prometheus.MustNewConstMetric(m.gauges[name], prometheus.GaugeValue, v)
	}
	for name, v := range s.counters(p) {
		ch <- prometheus.MustNewConstMetric(m.counters[name], prometheus.CounterValue, v)
	}
	for at, reasons := range p.drops() {
		for reason, n := range reasons {
			ch <- prometheus.MustNewConstMetric(m.drops, prometheus.CounterValue, float64(n), at, reason)
		}
	}
}

// drops counts by where and why.
func (p *parts) drops() map[string]map[string]uint64 {
	rooms, _ := p.book()
	out := map[string]map[string]uint64{"room": rooms}
	if p.node != nil {
		out["control"] = p.node.Drops().ByReason()
	}
	return out
}

// counters reads every counter that somebody else counts.
func (s *Server) counters(p *parts) map[string]float64 {
	cache := p.engine.Cache()
	c := map[string]float64{
		"tandem_prefix_cache_hits_total":          float64(cache.Hits),
		"tandem_prefix_cache_reused_tokens_total": float64(cache.Reused),
		"tandem_prefix_cache_evicted_cells_total": float64(cache.Evicted),
	}
	if p.transfer != nil {
		st := p.transfer.Stats()
		c["tandem_transfer_chunks_total"], c["tandem_transfer_bytes_total"] = float64(st.Chunks), float64(st.Bytes)
		c["tandem_transfer_discarded_total"], c["tandem_transfer_malformed_total"] = float64(st.Discarded), float64(st.Malformed)
		c["tandem_transfer_refused_total"] = float64(st.Refused)
	}
	if p.arena != nil {
		c["tandem_arena_misuse_total"] = float64(p.arena.Stats().Misuse)
	}
	return c
}

// gauges reads every gauge that this worker's role has.
func (s *Server) gauges(p *parts) map[string]float64 {
	g := map[string]float64{"tandem_requests_live": float64(p.record.Live())}
	rooms := p.roomCounts()
	if p.prefill != nil {
		g["sglang:num_prefill_bootstrap_queue_reqs"] = float64(rooms[room.Bootstrapping] + rooms[room.Computing])
		g["sglang:num_prefill_inflight_queue_reqs"] = float64(rooms[room.Transferring])
		g["sglang:num_queue_reqs"] = float64(rooms[room.WaitingForInput])
		g["tandem_rooms_ended_holding_memory"] = float64(rooms[room.Success] + rooms[room.Failed])
	} else {
		q := p.decode.Queues()
		g["sglang:num_decode_prealloc_queue_reqs"] = float64(q.Prealloc)
		g["sglang:num_decode_transfer_queue_reqs"] = float64(q.Transfer)
		g["sglang:num_queue_reqs"] = float64(q.Waiting)
		g["sglang:num_running_reqs"] = float64(q.Running)
		g["sglang:num_retracted_reqs"] = float64(p.engine.Load().Aside)
		g["tandem_rooms_ended_holding_memory"] = float64(rooms[room.Failed])
	}
	_, tombstones := p.book()
	g["tandem_room_tombstones"] = float64(tombstones)
	held, total := p.engine.Cells()
	g["tandem_kv_cells_held"], g["tandem_kv_cells"] = float64(held), float64(total)
	cache := p.engine.Cache()
	g["tandem_prefix_cache_cells"], g["tandem_prefix_cache_sequences"] = float64(cache.Cells), float64(cache.Seqs)
	if p.arena != nil {
		st := p.arena.Stats()
		g["tandem_arena_bytes"], g["tandem_arena_bytes_held"], g["tandem_arena_leases"] = float64(st.Total), float64(st.Total-st.Free), float64(st.Leases)
		g["tandem_arena_oldest_lease_seconds"] = st.Oldest.Seconds()
	}
	if p.transfer != nil {
		st := p.transfer.Stats()
		g["tandem_transfer_queued_chunks"], g["tandem_transfer_links"] = float64(st.Queued), float64(st.Links)
	}
	if c := p.engine.Call(); !c.Since.IsZero() {
		g["tandem_engine_in_call_seconds"] = time.Since(c.Since).Seconds()
	} else {
		g["tandem_engine_in_call_seconds"] = 0
	}
	if s.verdict().Ready {
		g["tandem_ready"] = 1
	} else {
		g["tandem_ready"] = 0
	}
	return g
}
