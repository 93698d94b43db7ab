//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router"
	"github.com/tandem-llm/tandem/test/fault"
)

// quickSim takes some milliseconds for a prompt of five chunks.
var quickSim = simEngine{tokenTime: "20us", callTime: "1ms", chunk: 64, kvBytes: 256}

const (
	// cellLimit is the deadline of a request in a cell; a cell waits no longer for a fault.
	cellLimit = 3 * time.Second
	// fencing is the deadline where the fault is silence: the fence comes before it.
	fencing = 7 * time.Second
	// crowded is how many requests meet a fault together.
	crowded = 4
)

// cell is one kind of frame with everything that can be done to it.
type cell struct {
	fault.Point
	faults []fault.Fault // nil: every one
	// provoke makes the frame come, beside the requests. It may end before it has.
	provoke func(f *fleet)
	at      []int // bytes to flip, beside the default ones
	heavy   bool  // a process is started again for it
}

// cells are all frames that the workers have for each other.
func cells() []cell {
	control := func(d fault.Dir, name string, provoke func(*fleet), at ...int) cell {
		return cell{Point: fault.Point{Plane: fault.Control, Dir: d, Type: name}, provoke: provoke, at: at}
	}
	data := func(d fault.Dir, name string, provoke func(*fleet), at ...int) cell {
		return cell{Point: fault.Point{Plane: fault.Data, Dir: d, Type: name}, provoke: provoke, at: at}
	}
	const p, d = fault.ToPrefill, fault.ToDecode
	none := func(*fleet) {}
	header := []int{0, 4, 5, 10, 18, 26, 34}
	all := []cell{
		control(p, "HELLO", (*fleet).severControl, 0, 10, 38, 46),
		control(d, "HELLO", (*fleet).severControl, 0, 10, 38, 46),
		control(p, "PING", none),
		control(d, "PING", none),
		control(p, "PONG", none),
		control(d, "PONG", none),
		// … tokens, have, window, digest
		control(p, "READY", none, append(header, 38, 42, 46, 54)...),
		// … chunks, sum
		control(p, "COMMIT", none, append(header, 38, 42)...),
		control(p, "ABORT", func(f *fleet) { f.abortWhileItTransfers(f.decode) }, header...),
		control(d, "ABORT", func(f *fleet) { f.abortWhileItTransfers(f.prefill) }, header...),
		control(d, "ABORT_ACK", func(f *fleet) { f.abortWhileItTransfers(f.decode) }),
		control(p, "ABORT_ACK", func(f *fleet) { f.abortWhileItTransfers(f.prefill) }),
		control(p, "FAIL", (*fleet).corruptOne, header...),
		control(d, "FAIL", (*fleet).legsThatDiffer, header...),
		data(p, "HELLO", (*fleet).severData, 0, 8, 16, 24, 32),
		data(d, "ANSWER", (*fleet).severData, 0, 6, 8),
		// room, generation, layout, bytes, sum, seq, p0, p1, zero, payload
		data(d, "CHUNK", none, 0, 4, 6, 8, 16, 24, 32, 40, 48, 56, 60, 64, 68, 72, 200),
		data(p, "CREDIT", none, 0, 4, 8, 32),
		data(p, "ACK", none, 0, 4, 8, 16, 24, 32),
	}
	drain := control(d, "DRAIN", (*fleet).restartPrefill)
	drain.heavy = true
	route := cell{Point: fault.Point{Plane: fault.Registry, Dir: d, Type: "ROUTE"}, provoke: (*fleet).restartDecode, at: []int{0, 20, 40}, heavy: true,
		faults: []fault.Fault{fault.Drop, fault.Delay, fault.Hold, fault.Truncate, fault.Flip, fault.Hole, fault.Reset, fault.Cut}}
	return append(all, drain, route)
}

// trial is one cell with one fault.
type trial struct {
	cell
	do fault.Fault
	at int
}

func (x trial) name() string {
	s := fmt.Sprintf("%v/%v", x.Point, x.do)
	if x.do == fault.Flip {
		s += fmt.Sprintf(" of byte %d", x.at)
	}
	return s
}

// trials lists every cell with each of its faults.
func trials() (all []trial) {
	for _, c := range cells() {
		faults := c.faults
		if faults == nil {
			faults = fault.Faults()
		}
		for _, do := range faults {
			at := []int{12}
			if do == fault.Flip {
				at = append(slices.Clone(c.at), -1)
			}
			for _, k := range at {
				all = append(all, trial{c, do, k})
			}
		}
	}
	return all
}

// forgivable are the causes by which a request may end when a frame of its hand-over,
// or its connection, was tampered with: faults of the network and of time, never one
// of ours, of the client or of its body.
var forgivable = []room.Code{room.Done, room.Deadline, room.PeerGone, room.TransferLost, room.TransferStall, room.BootstrapTimeout,
	room.UnpairedTimeout, room.NoPair, room.Corrupt, room.CommitMismatch, room.TokenizationMismatch, room.Protocol, room.AdmissionTimeout}

// codes are the causes by which a request may end in this trial.
func (x trial) codes() []room.Code {
	allowed := slices.Clone(forgivable)
	switch x.Type {
	case "ABORT", "ABORT_ACK":
		allowed = append(allowed, room.AbortRequest)
	case "DRAIN":
		allowed = append(allowed, room.Draining, room.DrainAbort)
	}
	drop := func(codes ...room.Code) {
		allowed = slices.DeleteFunc(allowed, func(c room.Code) bool { return slices.Contains(codes, c) })
	}
	if x.Type != "READY" || x.do != fault.Flip {
		drop(room.TokenizationMismatch)
	}
	if (x.Type != "CHUNK" || x.do != fault.Flip) && x.Type != "FAIL" {
		drop(room.Corrupt)
	}
	if x.Type != "COMMIT" && x.Type != "READY" && x.Type != "CHUNK" {
		drop(room.CommitMismatch, room.Protocol)
	}
	late := x.do == fault.Delay || x.do == fault.Reorder || x.Plane == fault.Control && x.do == fault.Duplicate
	switch {
	case late && x.Plane == fault.Control && !x.heavy && x.Type != "ABORT" && x.Type != "ABORT_ACK" && x.Type != "FAIL" && x.Type != "HELLO":
		return []room.Code{room.Done} // late or twice harms nothing
	}
	return allowed
}

// try sends requests into a fault, heals, and demands that each ended by a fitting
// cause, in time, and that nothing is left of any of it.
func (f *fleet) try(x trial, b baseline, prefix string) {
	t := f.t
	t.Helper()
	t.Log(x.name())
	limit := cellLimit
	if x.do == fault.Hole || x.do == fault.HalfOpen {
		limit = fencing
	}
	i := f.fault.Add(fault.Rule{Point: x.Point, Do: x.do, At: x.at, Delay: 300 * time.Millisecond, Times: times(x)})
	var provoking sync.WaitGroup
	if x.Plane == fault.Registry { // only who begins asks
		x.provoke(f)
	} else {
		provoking.Go(func() { x.provoke(f) })
	}
	header := map[string]string{router.TimeoutHeader: strconv.Itoa(int(limit.Milliseconds()))}
	c := f.askAll(prefix, crowded, func(i int) question {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.prompts++
		return question{prompt: f.engine.prompt(300, f.prompts), tokens: 12, header: header}
	})
	met := time.NewTimer(limit)
	defer met.Stop()
	select {
	case <-i.Met():
		f.moment("met")
	case <-met.C:
		t.Errorf("%s: no such frame came: that was no test", x.name())
	}
	c.judge(time.Now(), limit+slack)
	provoking.Wait()
	f.fault.Heal()
	healed := time.Now()
	f.recover(2 * recovered) // a breaker's second pause is 10 s
	b.held(time.Now(), freed+slack)
	f.mu.Lock()
	f.quiet = max(f.quiet, time.Since(healed))
	f.mu.Unlock()
	f.ends(prefix+"-", crowded, x.codes()...)
	f.alive()
}

// times is how many frames a trial meets: silence lasts, and what ends a connection
// would otherwise end each that follows.
func times(x trial) int {
	switch x.do {
	case fault.Delay, fault.Duplicate, fault.Reorder:
		return 0
	case fault.Drop, fault.Flip, fault.Truncate:
		return 2
	}
	return 1
}

func TestGauntletEveryFrameMeetsEveryFault(t *testing.T) {
	all := trials()
	lanes := 6
	if !full { // some, and others every day of the year
		lanes = 2
		all = slices.DeleteFunc(all, func(x trial) bool { return x.heavy })
		kept := all[:0]
		for i, x := range all {
			if i%24 == time.Now().YearDay()%24 {
				kept = append(kept, x)
			}
		}
		all = kept
	}
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, spec{engine: quickSim, proxy: true, prefill: []string{"--slots", "4"}, decode: []string{"--slots", "8"}})
			b := f.baseline()
			for k := lane; k < len(all) && !t.Failed(); k += lanes {
				began := time.Now()
				f.try(all[k], b, fmt.Sprintf("cell%d", k))
				t.Logf("%-60s %v", all[k].name(), time.Since(began).Round(time.Millisecond))
			}
			b.settled(time.Now())
		})
	}
}

// severControl makes the workers say HELLO again.
func (f *fleet) severControl() { f.fault.Sever(fault.Control) }

// severData makes decode bring another ticket.
func (f *fleet) severData() { f.fault.Sever(fault.Data) }

// restartPrefill makes prefill say that it leaves.
func (f *fleet) restartPrefill() {
	f.prefill.signal(f.t, syscall.SIGTERM)
	f.prefill.await(f.t, drained)
	f.prefill.start(f.t)
}

// restartDecode makes decode ask where prefill is.
func (f *fleet) restartDecode() {
	f.decode.kill(f.t)
	f.decode.start(f.t)
}

// ownLeg asks a worker as a router would, and forgets the answer when ctx ends.
func (f *fleet) ownLeg(ctx context.Context, w *process, q question, rid id.RID, rm id.Room, left time.Duration) answer {
	registry := f.ports.bootstrap
	if f.fault != nil {
		registry = f.fault.Port(fault.Registry)
	}
	q.members = map[string]any{"rid": rid, "bootstrap_host": "127.0.0.1", "bootstrap_port": registry, "bootstrap_room": rm, "tandem_remaining_ms": left.Milliseconds()}
	return ask(ctx, w.url, q)
}

// legsThatDiffer is a request whose legs have other prompts: prefill says FAIL.
func (f *fleet) legsThatDiffer() {
	ctx, cancel := context.WithTimeout(context.Background(), cellLimit)
	defer cancel()
	rid, rm := id.NewRID(), id.NewRoom()
	var legs sync.WaitGroup
	for i, w := range f.workers() {
		legs.Go(func() { f.ownLeg(ctx, w, question{prompt: f.engine.prompt(300, i), tokens: 2}, rid, rm, cellLimit) })
	}
	legs.Wait()
}

// corruptOne flips a bit of a payload: decode says FAIL.
func (f *fleet) corruptOne() {
	f.fault.Add(fault.Rule{Point: fault.Point{Plane: fault.Data, Dir: fault.ToDecode, Type: "CHUNK"}, Do: fault.Flip, At: -1, Times: 2})
}

// abortWhileItTransfers holds a chunk of a request and aborts it on one worker.
func (f *fleet) abortWhileItTransfers(on *process) {
	rid, rm := id.NewRID(), id.NewRoom()
	held := f.fault.Add(fault.Rule{Point: fault.Point{Plane: fault.Data, Dir: fault.ToDecode, Type: "CHUNK"}, Do: fault.Hold, Skip: 1, Times: 1,
		Match: func(x fault.Frame) bool { return x.Room == rm }})
	ctx, cancel := context.WithTimeout(context.Background(), cellLimit)
	defer cancel()
	var legs sync.WaitGroup
	defer legs.Wait()
	for _, w := range f.workers() {
		legs.Go(func() {
			f.ownLeg(ctx, w, question{prompt: f.engine.prompt(300, int(rm%1e6)), tokens: 2}, rid, rm, cellLimit)
		})
	}
	select {
	case <-held.Met():
	case <-ctx.Done():
		f.t.Errorf("the request never transferred")
		return
	}
	if err := abortAt(ctx, on, rid, rm); err != nil {
		f.t.Errorf("abort: %v", err)
	}
	// What is held would let nothing else through; the room has ended meanwhile, or
	// the deadline ends it.
	if _, err := f.roomOn(ctx, on, rm); err != nil {
		f.t.Errorf("%v", err)
	}
	held.Release()
}

// abortAt is POST /abort_request to one worker.
func abortAt(ctx context.Context, w *process, rid id.RID, rm id.Room) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/abort_request", bytes.NewReader(api.AbortJSON([]api.AbortTarget{{RID: rid, Room: rm}})))
	if err != nil {
		return err
	}
	resp, err := asker.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// roomOn waits until a room has ended on a worker, and returns its record.
func (f *fleet) roomOn(ctx context.Context, w *process, rm id.Room) (watch.Record, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		records, err := watch.Records(ctx, w.url, 400)
		if err != nil {
			return watch.Record{}, err
		}
		for _, r := range records {
			if r.Room == rm && !r.Live {
				return r, nil
			}
		}
		select {
		case <-ctx.Done():
			return watch.Record{}, errors.New("the room has not ended on " + w.name)
		case <-tick.C:
		}
	}
}
