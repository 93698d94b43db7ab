package watch

import (
	"slices"
	"testing"

	"github.com/tandem-llm/tandem/internal/id"
)

const page = `# HELP tandem_kv_cells_held KV cells that live sequences hold.
# TYPE tandem_kv_cells_held gauge
tandem_kv_cells_held 12
tandem_router_worker_in_flight{role="decode",worker="http://127.0.0.1:1"} 2
tandem_router_worker_in_flight{role="prefill",worker="http://127.0.0.1:2"} 1
tandem_requests_total{code="client_gone",outcome="aborted"} 3
tandem_requests_total{code="deadline",outcome="timeout"} 4
tandem_transfer_links 1
go_goroutines 30
process_open_fds 1e+02
nonsense
`

func TestAPageIsReadAsItIs(t *testing.T) {
	m := Parse([]byte(page))
	if len(m) != 8 || m["process_open_fds"] != 100 || m.Sum("tandem_router_worker_in_flight") != 3 ||
		m.Sum("tandem_router_worker_in_flight", `role="decode"`) != 2 || m.Sum("tandem_requests_total", `outcome="aborted"`) != 3 {
		t.Fatalf("%v", m)
	}
	s := Snapshot{"worker": m}
	if n := s.Failures()["worker"]; n != 4 {
		t.Errorf("%g failures, want the timeouts and not the aborts", n)
	}
	if busy := s.Busy(); len(busy) != 3 {
		t.Errorf("busy: %v, want cells and two legs, and no links", busy)
	}
}

func TestADifferenceFromTheBaselineIsNamed(t *testing.T) {
	was, is := Snapshot{"worker": Parse([]byte(page))}, Snapshot{"worker": Parse([]byte(page))}
	if off := append(is.Off(was), is.Grown(was)...); len(off) > 0 {
		t.Fatalf("the same page differs: %v", off)
	}
	is["worker"]["tandem_kv_cells_held"] = 13
	is["worker"]["tandem_requests_total{code=\"client_gone\",outcome=\"aborted\"}"] = 99
	is["worker"]["go_goroutines"] += footprint[gaugeGoroutines]
	delete(is["worker"], "tandem_transfer_links")
	want := []string{"worker: tandem_kv_cells_held is 13, was 12", "worker: tandem_transfer_links is 0, was 1"}
	if off := is.Off(was); !slices.Equal(off, want) {
		t.Errorf("%q, want %q", off, want)
	}
	if grown := is.Grown(was); len(grown) > 0 {
		t.Errorf("within the tolerance: %v", grown)
	}
	is["worker"]["go_goroutines"]++
	if grown := is.Grown(was); len(grown) != 1 {
		t.Errorf("beyond the tolerance: %v", grown)
	}
}

func TestThePhaseOfARoomFollowsFromBothSides(t *testing.T) {
	record := func(outcome string, states ...string) Record {
		r := Record{RID: "x", Outcome: outcome, Live: outcome == ""}
		for _, s := range states {
			r.Steps = append(r.Steps, struct {
				State string `json:"state"`
				On    string `json:"on"`
			}{State: s})
		}
		return r
	}
	const rm = id.Room(1)
	for _, c := range []struct {
		name            string
		prefill, decode Record
		want            Phase
	}{
		{"waits for decode's memory", record("", "Bootstrapping"), record("", "Prealloc"), Queued},
		{"waits for prefill's", record("", "Bootstrapping", "WaitingForInput"), record("", "Prealloc", "Bootstrapping", "WaitingForInput"), Queued},
		{"computes early", record("", "Bootstrapping", "Computing"), record("", "Prealloc"), Prefilling},
		{"computes", record("", "Bootstrapping", "Computing", "Transferring"), record("", "Prealloc", "Bootstrapping", "WaitingForInput"), Prefilling},
		{"transfers", record("", "Transferring", "computed"), record("", "WaitingForInput", "Transferring"), Transferring},
		{"decodes", record("ok", "Transferring", "Success"), record("", "Transferring", "Success"), Decoding},
		{"was aborted while it transferred", record("aborted", "Transferring", "Failed"), record("aborted", "Transferring", "Failed"), Transferring},
		{"was aborted while it decoded", record("ok", "Success"), record("aborted", "Success"), Decoding},
	} {
		r := Rooms{map[id.Room]Record{rm: c.prefill}, map[id.Room]Record{rm: c.decode}}
		if got, ok := r.Phase(rm); got != c.want || !ok {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	done := Rooms{map[id.Room]Record{rm: record("ok", "Success")}, map[id.Room]Record{rm: record("ok", "Success")}}
	if got, ok := done.Phase(rm); ok {
		t.Errorf("a room that ran to its end is %q", got)
	}
}
