//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/test/fault"
)

// staged is a room that the test itself leads, as a router would, to some state.
type staged struct {
	f      *fleet
	rid    id.RID
	room   id.Room
	tokens int // to generate
	ctx    context.Context
	legs   sync.WaitGroup
	mu     sync.Mutex
	leave  map[*process]context.CancelFunc // closes a leg's connection
}

func (f *fleet) room(ctx context.Context) *staged {
	return &staged{f: f, rid: id.NewRID(), room: id.NewRoom(), tokens: 2, ctx: ctx, leave: map[*process]context.CancelFunc{}}
}

// leg sends the room's leg to a worker.
func (s *staged) leg(workers ...*process) {
	for _, w := range workers {
		ctx, cancel := context.WithCancel(s.ctx)
		s.mu.Lock()
		s.leave[w] = cancel
		s.mu.Unlock()
		s.legs.Go(func() {
			s.f.ownLeg(ctx, w, question{prompt: s.f.engine.prompt(300, int(s.room%1e6)), tokens: s.tokens}, s.rid, s.room, cellLimit)
		})
	}
}

// end closes the legs' connections and waits for them.
func (s *staged) end() {
	s.mu.Lock()
	for _, leave := range s.leave {
		leave()
	}
	s.mu.Unlock()
	s.legs.Wait()
}

// hold keeps frames of this room from arriving.
func (s *staged) hold(plane fault.Plane, d fault.Dir, name string, skip int) *fault.Injection {
	return s.f.fault.Add(fault.Rule{Point: fault.Point{Plane: plane, Dir: d, Type: name}, Do: fault.Hold, Skip: skip, Times: 1,
		Match: func(x fault.Frame) bool { return x.Room == s.room || x.Room == 0 }})
}

// at waits until the room is in a state on a worker.
func (s *staged) at(w *process, state string) {
	s.f.t.Helper()
	until(s.f.t, fmt.Sprintf("the room is %s on %s", state, w.name), cellLimit, func(ctx context.Context) error {
		records, err := watch.Records(ctx, w.url, 50)
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Room == s.room {
				if got := r.State(); got != state {
					return fmt.Errorf("it is %s", got)
				}
				return nil
			}
		}
		return fmt.Errorf("it is not there")
	})
}

// counted waits until a worker has a room in a state in which it has no record yet.
func (s *staged) counted(w *process, state string) {
	s.f.t.Helper()
	until(s.f.t, fmt.Sprintf("a room is %s on %s", state, w.name), cellLimit, func(ctx context.Context) error {
		_, body, err := watch.Get(ctx, w.url+"/debug/rooms?n=0")
		var v struct{ States map[string]int }
		if err == nil {
			err = json.Unmarshal(body, &v)
		}
		if err == nil && v.States[state] == 0 {
			err = fmt.Errorf("%v", v.States)
		}
		return err
	})
}

// aborted demands that the room has ended on a worker as an abort, and, if state is
// not "", from that state.
func (s *staged) aborted(w *process, state string) {
	s.f.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, freed+slack)
	defer cancel()
	r, err := s.f.roomOn(ctx, w, s.room)
	if err != nil {
		s.f.t.Fatalf("%v within %v", err, freed+slack)
	}
	if r.Outcome != "aborted" {
		s.f.t.Errorf("on %s it ended %s (%s: %s), want aborted", w.name, r.Outcome, r.Code, r.Detail)
	}
	if state == "" {
		return
	}
	if got := r.State(); got != state {
		s.f.t.Errorf("on %s it was aborted in %s, want %s", w.name, got, state)
		return
	}
	s.f.moment(w.name + " " + state)
}

// stage is a place in a room's life at which it is aborted.
type stage struct {
	name  string
	fleet int // which of stageFleets
	enter func(s *staged)
	// prefill and decode are the states there; "" where the room has no record.
	prefill, decode string
	bound           bool // the two know each other: an abort of one ends the other
}

// stageFleets: roomy, with an arena for one room on prefill, with one slot on decode,
// and with a prefill that computes nothing before READY.
var stageFleets = []spec{
	{prefill: []string{"--slots", "4"}, decode: []string{"--slots", "8"}},
	{prefill: []string{"--slots", "4", "--arena-bytes", "62000"}, decode: []string{"--slots", "8"}},
	{prefill: []string{"--slots", "4"}, decode: []string{"--slots", "1"}},
	{prefill: []string{"--slots", "4", "--unpaired", "-1"}, decode: []string{"--slots", "8"}},
}

// blocked has another room transfer, held at its second chunk, so that what it has is
// missing for this one.
func (s *staged) blocked() {
	other := s.f.room(s.ctx)
	held := other.hold(fault.Data, fault.ToDecode, "CHUNK", 1)
	other.leg(s.f.workers()...)
	await(s.f.t, held.Met(), "the blocking room transfers")
	s.f.t.Cleanup(other.end)
	s.legs.Go(func() {
		<-s.ctx.Done()
		other.end()
	})
}

// await waits for a signal.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(cellLimit)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, cellLimit)
	}
}

func stages() []stage {
	return []stage{
		{name: "prefill bootstraps", fleet: 3, prefill: "Bootstrapping", enter: func(s *staged) {
			s.leg(s.f.prefill)
			s.at(s.f.prefill, "Bootstrapping")
		}},
		{name: "prefill computes early", prefill: "Computing", enter: func(s *staged) {
			s.leg(s.f.prefill)
			s.at(s.f.prefill, "Computing")
		}},
		{name: "prefill computes, READY is on its way", prefill: "Computing", decode: "WaitingForInput", enter: func(s *staged) {
			held := s.hold(fault.Control, fault.ToPrefill, "READY", 0)
			s.leg(s.f.workers()...)
			await(s.f.t, held.Met(), "decode says READY")
			s.at(s.f.prefill, "Computing")
		}},
		{name: "prefill waits for memory", fleet: 1, prefill: "WaitingForInput", decode: "WaitingForInput", bound: true, enter: func(s *staged) {
			s.blocked()
			s.leg(s.f.workers()...)
			s.at(s.f.prefill, "WaitingForInput")
			s.at(s.f.decode, "WaitingForInput")
		}},
		{name: "the first chunk is on its way", prefill: "Transferring", decode: "WaitingForInput", bound: true, enter: func(s *staged) {
			held := s.hold(fault.Data, fault.ToDecode, "CHUNK", 0)
			s.leg(s.f.workers()...)
			await(s.f.t, held.Met(), "the first chunk")
		}},
		{name: "the last chunk is on its way", prefill: "Transferring", decode: "Transferring", bound: true, enter: func(s *staged) {
			held := s.f.fault.Add(fault.Rule{Point: fault.Point{Plane: fault.Data, Dir: fault.ToDecode, Type: "CHUNK"}, Do: fault.Hold, Times: 1,
				Match: func(x fault.Frame) bool { return x.Room == s.room && x.Last }})
			s.leg(s.f.workers()...)
			await(s.f.t, held.Met(), "the last chunk")
			s.at(s.f.decode, "Transferring")
		}},
		{name: "COMMIT is on its way", prefill: "Transferring", decode: "Success", enter: func(s *staged) {
			s.tokens = 4000
			held := s.hold(fault.Control, fault.ToPrefill, "COMMIT", 0)
			s.leg(s.f.workers()...)
			await(s.f.t, held.Met(), "decode commits")
			s.at(s.f.decode, "Success")
		}},
		{name: "decode waits for memory", fleet: 2, prefill: "Computing", decode: "Prealloc", enter: func(s *staged) {
			s.blocked()
			s.leg(s.f.workers()...)
			s.at(s.f.decode, "Prealloc")
			s.at(s.f.prefill, "Computing")
		}},
		{name: "decode looks for prefill", prefill: "Computing", decode: "Bootstrapping", enter: func(s *staged) {
			held := s.hold(fault.Control, fault.ToPrefill, "HELLO", 0)
			s.f.fault.Sever(fault.Control)
			s.f.fault.Sever(fault.Data)
			await(s.f.t, held.Met(), "decode says HELLO")
			s.leg(s.f.workers()...)
			s.at(s.f.decode, "Bootstrapping")
			s.at(s.f.prefill, "Computing")
		}},
		{name: "decode waits, prefill has no leg", decode: "WaitingForInput", enter: func(s *staged) {
			s.leg(s.f.decode)
			s.at(s.f.decode, "WaitingForInput")
			s.counted(s.f.prefill, "Early")
		}},
		{name: "decode generates", prefill: "Success", decode: "Success", enter: func(s *staged) {
			s.tokens = 4000
			s.leg(s.f.workers()...)
			s.at(s.f.decode, "Success")
			s.at(s.f.prefill, "Success")
		}},
	}
}

// way is how an abort comes.
type way struct {
	name            string
	prefill, decode bool // who is told
	do              func(s *staged, w *process) error
}

func ways() (all []way) {
	post := func(s *staged, w *process) error { return abortAt(s.ctx, w, s.rid, s.room) }
	hangUp := func(s *staged, w *process) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if leave := s.leave[w]; leave != nil {
			leave()
			return nil
		}
		return abortAt(s.ctx, w, s.rid, s.room) // no leg there: the router's abort is all that comes
	}
	for _, who := range []way{{name: "at prefill", prefill: true}, {name: "at decode", decode: true}, {name: "at both", prefill: true, decode: true}} {
		all = append(all, way{"POST " + who.name, who.prefill, who.decode, post}, way{"hang-up " + who.name, who.prefill, who.decode, hangUp})
	}
	return all
}

func TestGauntletAnAbortInEveryStateFromEverySide(t *testing.T) {
	for n, s := range stageFleets {
		t.Run(fmt.Sprintf("fleet %d", n), func(t *testing.T) {
			t.Parallel()
			s.engine, s.proxy = quickSim, true
			f := newFleet(t, s)
			b := f.baseline()
			for _, g := range stages() {
				if g.fleet != n {
					continue
				}
				for _, w := range ways() {
					if t.Failed() {
						return
					}
					t.Log(g.name + ", " + w.name)
					f.abortIn(g, w)
					b.held(time.Now(), freed+slack)
				}
			}
			b.settled(time.Now())
			f.alive()
		})
	}
}

// abortIn leads a room to a stage, aborts it, and demands that it ends so on who was
// told, and on the other if the two are bound. Then the other leg leaves too.
func (f *fleet) abortIn(g stage, how way) {
	t := f.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := f.room(ctx)
	g.enter(s)
	for _, x := range []struct {
		told bool
		w    *process
	}{{how.prefill, f.prefill}, {how.decode, f.decode}} {
		if x.told {
			if err := how.do(s, x.w); err != nil {
				t.Fatalf("%s: %v", how.name, err)
			}
		}
	}
	over := g.decode == "Success" // the hand-over is complete: prefill has nothing to abort
	if (how.decode || g.bound) && g.decode != "" {
		s.aborted(f.decode, g.decode)
	}
	if (how.prefill || g.bound) && g.prefill != "" && !over {
		s.aborted(f.prefill, g.prefill)
	}
	// Twice is as good as once, also when the room has ended.
	if err := abortAt(ctx, f.decode, s.rid, s.room); err != nil {
		t.Error(err)
	}
	if err := abortAt(ctx, f.prefill, s.rid, s.room); err != nil {
		t.Error(err)
	}
	cancel()
	s.end()
	f.fault.Heal()
	f.recover(recovered)
}

func TestGauntletAnAbortBeforeItsRoomAndAfterIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, spec{engine: quickSim, proxy: true})
	b := f.baseline()
	first := func(s *staged) { // the abort comes first, the legs after it
		f.moment("abort before its room")
		s.leg(f.workers()...)
		s.aborted(f.prefill, "")
		s.aborted(f.decode, "")
	}
	for _, c := range []struct {
		name string
		do   func(s *staged)
	}{
		{"told to prefill before its leg", func(s *staged) {
			if err := abortAt(s.ctx, f.prefill, s.rid, s.room); err != nil {
				t.Fatal(err)
			}
			first(s)
		}},
		{"told to decode before its leg", func(s *staged) {
			if err := abortAt(s.ctx, f.decode, s.rid, s.room); err != nil {
				t.Fatal(err)
			}
			s.leg(f.workers()...)
			s.aborted(f.decode, "")
			f.moment("abort before its room")
			if err := abortAt(s.ctx, f.prefill, s.rid, s.room); err != nil { // as a router does
				t.Fatal(err)
			}
			s.aborted(f.prefill, "")
		}},
		{"told by decode, whose READY was lost, before prefill has its leg", func(s *staged) {
			f.fault.Add(fault.Rule{Point: fault.Point{Plane: fault.Control, Dir: fault.ToPrefill, Type: "READY"}, Do: fault.Drop, Times: 1})
			s.leg(f.decode)
			s.at(f.decode, "WaitingForInput")
			if err := abortAt(s.ctx, f.decode, s.rid, s.room); err != nil {
				t.Fatal(err)
			}
			s.counted(f.prefill, "Parked")
			f.moment("Parked")
			s.leg(f.prefill)
			s.aborted(f.prefill, "")
			s.aborted(f.decode, "WaitingForInput")
		}},
		{"told by decode when prefill has READY and no leg", func(s *staged) {
			s.leg(f.decode)
			s.counted(f.prefill, "Early")
			f.moment("Early")
			if err := abortAt(s.ctx, f.decode, s.rid, s.room); err != nil {
				t.Fatal(err)
			}
			s.aborted(f.decode, "WaitingForInput")
			s.leg(f.prefill)
			s.aborted(f.prefill, "")
		}},
		{"when both have forgotten nothing and served it", func(s *staged) {
			s.leg(f.workers()...)
			s.legs.Wait()
			for _, w := range f.workers() {
				if err := abortAt(s.ctx, w, s.rid, s.room); err != nil {
					t.Fatal(err)
				}
				if r, err := f.roomOn(s.ctx, w, s.room); err != nil || r.Outcome != "ok" {
					t.Errorf("%s: %+v, %v: a late abort changed the ending", w.name, r, err)
				}
			}
			f.moment("abort after its room")
		}},
	} {
		t.Log(c.name)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		s := f.room(ctx)
		c.do(s)
		cancel()
		s.end()
		f.fault.Heal()
		f.canary()
		b.held(time.Now(), freed+slack)
	}
	b.settled(time.Now())
	f.alive()
}
