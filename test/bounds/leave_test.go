package bounds

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// longStep is the longest library call of leavingEngine: 16 rows of a prompt.
const longStep = 60 * time.Millisecond

// leavingEngine computes a prompt of 200 tokens in some 0.7 s, imports it in 0.3 s and
// makes a token every 22 ms.
func leavingEngine() sim.Config {
	c := slowEngine()
	c.MaxRows = 16
	return c
}

// phases are where a request is when its client leaves: is says so by the gauges of
// prefill and decode.
var phases = []struct {
	name string
	busy bool          // the slots are taken by others
	then time.Duration // after that
	is   func(p, d map[string]float64) bool
}{
	{"queued", true, 0, func(_, d map[string]float64) bool { return d["sglang:num_decode_prealloc_queue_reqs"] == 1 }},
	{"prefill", false, 0, func(p, d map[string]float64) bool {
		return p["tandem_kv_cells_held"] > 0 && d["tandem_kv_cells_held"] > 0 && p["tandem_transfer_chunks_total"] == chunksOfCanary
	}},
	{"transfer", false, 0, func(p, d map[string]float64) bool {
		return p["tandem_transfer_chunks_total"] > chunksOfCanary+2 && d["sglang:num_decode_transfer_queue_reqs"] == 1
	}},
	{"first token", false, 0, committed},
	{"decoding", false, 200 * time.Millisecond, committed},
}

// committed is true when the hand-over is complete: from then on the first token is made.
func committed(p, d map[string]float64) bool {
	return p["tandem_requests_live"] == 0 && d["tandem_requests_live"] == 1
}

const chunksOfCanary = 3 // 39 tokens travel, in chunks of 16

// reach brings a request into a phase and returns its client.
func (f *fleet) reach(is func(p, d map[string]float64) bool) *open {
	f.t.Helper()
	c := f.open(ask{prompt: text(200, 1), tokens: 300})
	for range 250 {
		pass(4 * time.Millisecond)
		if is(f.metrics(f.ps[0].url()), f.metrics(f.ds[0].url())) {
			return c
		}
	}
	f.t.Fatal("the request never is where it should be when its client leaves")
	return nil
}

func TestAClientThatLeavesStopsComputeWithinAStepAndFreesAllMemory(t *testing.T) {
	for _, p := range phases {
		t.Run(p.name, func(t *testing.T) {
			inBubble(t, options{sim: leavingEngine()}, func(t *testing.T, f *fleet) {
				f.canary("before")
				var others []*open
				if p.busy {
					for i := range f.opts.sim.Slots {
						others = append(others, f.open(ask{prompt: text(50, 10+i), tokens: 400}))
						if err := others[i].events(1); err != nil {
							t.Fatal(err)
						}
					}
				}
				before := f.ends()
				was := f.metrics(f.ds[0].url())["tandem_requests_live"]
				c := f.reach(p.is)
				pass(p.then)
				c.Conn.Close()
				left := time.Now()
				synctest.Wait()
				if n := f.ends(); n != before+1 {
					t.Error("the router has not noticed")
				}
				if r := f.last(); r.Outcome != "aborted" || r.Code != "client_gone" || r.Who != "client" {
					t.Errorf("it ended %+v", r)
				}
				pass(longStep)
				for _, w := range f.all() {
					if n := w.steps.since("compute", left); n > 0 && !p.busy {
						t.Errorf("%s: %d library calls began after the client had left", w.name(), n)
					}
				}
				if p.busy { // the others go on
					if h := f.holds(f.ps[0].url()); h != "" {
						t.Errorf("prefill holds %s", h)
					}
					if n := f.metrics(f.ds[0].url())["tandem_requests_live"]; n != was {
						t.Errorf("%v requests live on decode, there were %v", n, was)
					}
					for _, o := range others {
						o.Conn.Close()
					}
					pass(longStep)
				}
				if took := f.free(time.Second, f.all()...); took > 0 {
					t.Errorf("memory was free %v after the step", took)
				}
				f.canary("afterwards")
			})
		})
	}
}

func TestMemoryOfAClientThatLeftIsFreeAfterTheLeaseThoughAReaderIsFrozen(t *testing.T) {
	data := route{decodeIP + "1", prefillIP + "1", dataPort}
	const unaware = -1 // it cannot hear that the client left
	for _, m := range []struct {
		name            string
		freeze          func(f *fleet)
		prefill, decode time.Duration // when their memory is free
	}{
		{"no byte leaves decode", func(f *fleet) { f.net.block(data, out) }, 0, 0},
		{"no byte comes to decode", func(f *fleet) { f.net.block(data, back) }, transfer.Lease, 0},
		{"a chunk stops in its middle", func(f *fleet) { f.net.hold(data, back, 2000) }, transfer.Lease, 0},
		{"decode is frozen", func(f *fleet) { f.ds[0].freeze() }, transfer.Lease, unaware},
		{"prefill is frozen", func(f *fleet) { f.ps[0].freeze() }, unaware, 0},
	} {
		t.Run(m.name, func(t *testing.T) {
			o := options{sim: leavingEngine()}
			o.sim.KVBytesPerToken = 24 << 10 // a chunk is longer than what a connection holds
			inBubble(t, o, func(t *testing.T, f *fleet) {
				f.canary("before")
				c := f.reach(func(p, d map[string]float64) bool {
					return p["tandem_transfer_chunks_total"] > chunksOfCanary+2 && d["sglang:num_decode_transfer_queue_reqs"] == 1
				})
				m.freeze(f)
				pass(200 * time.Millisecond) // what is under way stops
				c.Conn.Close()
				left := time.Now()
				for _, w := range []struct {
					*process
					at time.Duration
				}{{f.ds[0], m.decode}, {f.ps[0], m.prefill}} {
					if w.at == unaware {
						continue
					}
					pass(longStep - time.Since(left))
					f.free(transfer.Lease, w.process)
					if took := time.Since(left); took > max(w.at+tick, longStep) || took < w.at {
						t.Errorf("the memory of %s was free after %v, not %v", w.name(), took, w.at)
					}
				}
				f.net.heal()
				f.recover("afterwards")
			})
		})
	}
}
