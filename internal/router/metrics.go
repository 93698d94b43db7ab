package router

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the router's own registry.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	attempts *prometheus.CounterVec
	retries  prometheus.Counter
	aborts   *prometheus.CounterVec
	ttft     prometheus.Histogram
	e2e      *prometheus.HistogramVec
}

// buckets in seconds, for answers from a cached prompt's to a deadline's.
var (
	ttftBuckets = []float64{.005, .01, .025, .05, .1, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120}
	e2eBuckets  = []float64{.01, .05, .1, .25, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}
)

func newMetrics(p *pool, b func() int) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tandem_router_requests_total", Help: "Accepted requests by how they ended; each is counted once."}, []string{"outcome", "code"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tandem_router_failures_charged_total", Help: "Failures charged to a worker's breaker. Aborts and clients' errors never are."}, []string{"role", "worker"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tandem_router_retries_total", Help: "Second attempts, each on a new room."}),
		aborts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tandem_router_aborts_total", Help: "Aborts sent to workers by what became of them."}, []string{"role", "worker", "result"}),
		ttft: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tandem_router_ttft_seconds", Help: "From a stream's request to its first event from decode.", Buckets: ttftBuckets}),
		e2e: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tandem_router_e2e_seconds", Help: "From a request's arrival to its end.", Buckets: e2eBuckets}, []string{"outcome"}),
	}
	m.registry.MustRegister(m.requests, m.attempts, m.retries, m.aborts, m.ttft, m.e2e,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("tandem_router_in_flight", "Requests accepted and not ended.", nil, func() float64 { return float64(b()) })
	m.gauge("tandem_router_usable_pairs", "Pairs of workers that a new room may go to.", nil, func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return float64(p.usablePairs(time.Now()))
	})
	for _, w := range p.all() {
		labels := prometheus.Labels{"role": string(w.role), "worker": w.url}
		m.gauge("tandem_router_worker_in_flight", "Legs in flight on a worker.", labels, func() float64 { return float64(p.load(w)) })
		m.gauge("tandem_router_worker_usable", "1 if new rooms may go to a worker.", labels, func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			if w.usable(time.Now()) {
				return 1
			}
			return 0
		})
		m.gauge("tandem_router_breaker_state", "A worker's breaker: 0 closed, 1 half open, 2 open.", labels, func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return map[string]float64{"closed": 0, "half_open": 1, "open": 2}[w.breaker.state(time.Now())]
		})
		m.gauge("tandem_router_abort_queue", "Aborts not sent to a worker yet.", labels, func() float64 { return float64(w.aborts.state().Len) })
	}
	return m
}

func (m *metrics) gauge(name, help string, labels prometheus.Labels, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read))
}

// accessLog shows what is missing in the access log.
func (m *metrics) accessLog(a *accessLog) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tandem_router_access_log_lost_total", Help: "Ended requests that are not in the access log, because the disk was slow or full.",
	}, func() float64 { return float64(a.lost.Load()) }))
}

// ended counts a record that was finalized.
func (m *metrics) ended(r Record) {
	m.requests.WithLabelValues(r.Outcome, r.Code).Inc()
	m.e2e.WithLabelValues(r.Outcome).Observe(r.Took)
	if r.Stream && r.FirstByte > 0 { // a whole answer's first byte is its last
		m.ttft.Observe(r.FirstByte)
	}
}
