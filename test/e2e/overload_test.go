//go:build unix

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/vanish"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router"
	"github.com/tandem-llm/tandem/test/fault"
)

func TestGauntletMemoryForHardlyOneRequestServesThemAllAllTheSame(t *testing.T) {
	// A chunk of quickSim with its header has 17 KiB; a room's share is two.
	for _, c := range []struct {
		name            string
		prefill, decode []string
	}{
		{"few cells on prefill", []string{"--context", "700", "--slots", "4"}, nil},
		{"few cells on decode", nil, []string{"--context", "700", "--slots", "4"}},
		{"an arena for one share on prefill", []string{"--arena-bytes", "45000"}, nil},
		{"an arena for one window on decode", nil, []string{"--arena-bytes", "45000"}},
		{"few of everything", []string{"--context", "400", "--arena-bytes", "45000", "--slots", "1"}, []string{"--context", "400", "--arena-bytes", "45000", "--slots", "1"}},
	} {
		if !full && (c.prefill == nil || c.decode == nil) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, spec{engine: quickSim, prefill: c.prefill, decode: c.decode})
			b := f.baseline()
			rounds := 1
			if full {
				rounds = 5
			}
			for round := range rounds {
				// As many as stay leave: what those held must serve these.
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				first := round * 1000
				crowd, err := vanish.OpenAll(ctx, vanish.Addr(f.router.url), "/v1/completions", 40, func(i int) []byte {
					return question{prompt: f.engine.prompt(300, first+i), tokens: 40, label: fmt.Sprintf("leaves%d-%d", round, i)}.body()
				})
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				stay := f.askAll(fmt.Sprintf("stays%d", round), 40, func(i int) question {
					return question{prompt: f.engine.prompt(300, first+500+i), tokens: 40}
				})
				until(t, "a tenth has been served", patience, func(context.Context) error {
					if n := len(f.labelled(fmt.Sprintf("stays%d-", round))) + len(f.labelled(fmt.Sprintf("leaves%d-", round))); n < 8 {
						return fmt.Errorf("%d have", n)
					}
					return nil
				})
				crowd.Vanish()
				crowd.Wait()
				stay.all(t)
				b.held(time.Now(), freed+slack)
				f.ends(fmt.Sprintf("stays%d-", round), 40, room.Done)
				f.ends(fmt.Sprintf("leaves%d-", round), 40, room.Done, room.ClientGone)
			}
			f.canary()
			b.settled(time.Now())
			f.alive()
		})
	}
}

func TestGauntletTwentyTimesMoreThanCanBeServedIsRefusedInTimeAndLeavesNothing(t *testing.T) {
	const limit = 5 * time.Second
	load := time.Second
	if full {
		load = 20 * time.Second
	}
	// 40 ms of prefill, or of decoding at four at once, for each: some 25 a second.
	f := newFleet(t, spec{engine: simEngine{tokenTime: "100us", callTime: "2ms", chunk: 64, kvBytes: 256},
		prefill: []string{"--slots", "4", "--context", "4096"}, decode: []string{"--slots", "4", "--context", "4096"}})
	b := f.baseline()
	header := map[string]string{router.TimeoutHeader: strconv.Itoa(int(limit.Milliseconds()))}
	ask := func(i int) question {
		return question{prompt: f.engine.prompt(400, i), tokens: 20, header: header}
	}
	// What it can: sixteen at a time for a second.
	alone := f.askAll("capacity", 32, ask)
	began := time.Now()
	alone.all(t)
	capacity := 32 / time.Since(began).Seconds()
	offered := min(20*capacity, 1500) // what this machine's clients can ask for
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var crowds []*crowd
	n := 0
	for began = time.Now(); time.Since(began) < load; <-tick.C {
		due := int(time.Since(began).Seconds()*offered) - n
		if due <= 0 {
			continue
		}
		first := 1000 + n
		crowds = append(crowds, f.askAll(fmt.Sprintf("overload%d", len(crowds)), due, func(i int) question { return ask(first + i) }))
		n += due
	}
	complete, slowest := 0, time.Duration(0)
	for _, c := range crowds {
		v := c.judge(began, load+limit+slack)
		complete += v.complete
		slowest = max(slowest, v.last)
	}
	ended := time.Now()
	codes := f.ends("overload", n, room.Done, room.Deadline, room.QueueFull, room.NoPair, room.AdmissionTimeout, room.BootstrapTimeout, room.UnpairedTimeout)
	goodput := float64(complete) / ended.Sub(began).Seconds()
	t.Logf("capacity %.0f/s, offered %.0f/s for %v: %d requests, %v; goodput %.0f/s, %.0f %% of capacity", capacity, offered, load, n, codes, goodput, 100*goodput/capacity)
	f.moments[fmt.Sprintf("goodput of %.0f/s at %.0f/s offered, capacity %.0f/s", goodput, offered, capacity)]++
	b.held(ended, freed+slack)
	next := f.canary()
	if next > time.Second {
		t.Errorf("the next request took %v", next)
	}
	b.back(ended, freed+slack)
	f.alive()
}

// The two judges of a data plane that falls silent while the sessions live are the
// room's clock, T_stall, and the link's.
func TestGauntletADataPlaneThatFallsSilentFailsItsRoomsAndGivesTheirMemoryBack(t *testing.T) {
	if !full {
		t.Skip("it takes half a minute: make gauntlet")
	}
	for _, p := range []fault.Point{
		{Plane: fault.Data, Dir: fault.ToDecode, Type: "CHUNK"},
		{Plane: fault.Data, Dir: fault.ToPrefill, Type: "CREDIT"},
		{Plane: fault.Data, Dir: fault.ToPrefill, Type: "ACK"},
	} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, spec{engine: quickSim, proxy: true, router: []string{"--attempts", "1"}})
			b := f.baseline()
			// A window's worth of chunks shows nothing: the hole is there for all.
			f.fault.Add(fault.Rule{Point: p, Do: fault.Hole})
			c := f.askAll("silence", crowded, func(i int) question {
				return question{prompt: f.engine.prompt(1200, i), tokens: 4}
			})
			asked := time.Now()
			c.judge(asked, stalled+slack)
			t.Logf("%v", f.ends("silence-", crowded, room.Done, room.TransferStall, room.TransferLost, room.NoPair, room.BootstrapTimeout))
			f.fault.Heal()
			f.recover(recovered)
			b.back(time.Now(), freed+slack)
			f.alive()
		})
	}
}

// stalled is T_stall with the link's own slices of it.
const stalled = room.DefaultStall + room.DefaultStall/2

func TestGauntletLinksThatAreOpenOnOneSideOnlyAreNoticed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, spec{engine: quickSim, proxy: true})
	b := f.baseline()
	for _, p := range []fault.Point{
		{Plane: fault.Control, Dir: fault.ToPrefill, Type: "PING"},
		{Plane: fault.Control, Dir: fault.ToDecode, Type: "PING"},
	} {
		i := f.fault.Add(fault.Rule{Point: p, Do: fault.HalfOpen, Times: 1})
		await(t, i.Met(), p.String())
		f.moment("half open " + p.String())
		// Nobody heals it: the side that is left open must find out by silence.
		f.recover(recovered)
	}
	b.back(time.Now(), freed+slack)
	f.alive()
}
