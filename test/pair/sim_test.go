package pair

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/prefill"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const simChunk = 16

var simConfig = sim.Config{Cells: 1024, Slots: 8, Chunk: simChunk, KVBytesPerToken: 256}

func newSim(t testing.TB, c sim.Config) *sim.Backend {
	t.Helper()
	b, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// prompt returns n tokens that differ from every other prompt's with another salt.
func prompt(n, salt int) []engine.Token {
	out := make([]engine.Token, n)
	for i := range out {
		out[i] = engine.Token(3 + (i*31+salt*17+i*i)%250)
	}
	return out
}

func simPair(t testing.TB, c sim.Config, po, do Options) (*Prefill, *Decode) {
	p := NewPrefill(t, newSim(t, c), po)
	return p, NewDecode(t, newSim(t, c), do, To(p))
}

func TestEveryLengthIsHandedOverAndContinuesExactly(t *testing.T) {
	p, d := simPair(t, simConfig, Options{}, Options{})
	for _, n := range []int{1, 2, simChunk - 1, simChunk, simChunk + 1, simChunk + 2, 3*simChunk + 7, 1024 - 8} {
		tokens := prompt(n, n)
		got, dc, pc := Run(t, p, d, tokens, engine.Params{MaxTokens: 8})
		if dc.Code != room.Done || pc.Code != room.Done {
			t.Fatalf("n = %d: decode ended with %v, prefill with %v", n, dc, pc)
		}
		if want := sim.Expect(simConfig, tokens, 8); !slices.Equal(got, want) {
			t.Fatalf("n = %d: generated %v, want %v", n, got, want)
		}
		Quiet(t, p, d)
	}
}

func TestFortyRequestsAtOnceThroughEightSlotsAllContinueExactly(t *testing.T) {
	c := simConfig
	c.TokenTime = 20 * time.Microsecond
	p, d := simPair(t, c, Options{}, Options{})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			tokens := prompt(1+i*5, i)
			got, dc, pc := Run(t, p, d, tokens, engine.Params{MaxTokens: 6})
			if dc.Code != room.Done || pc.Code != room.Done || !slices.Equal(got, sim.Expect(c, tokens, 6)) {
				t.Errorf("request %d: decode %v, prefill %v, tokens %v", i, dc, pc, got)
			}
		}()
	}
	wg.Wait()
	Quiet(t, p, d)
}

func TestARoomThatComputesEarlyWaitsForReadyInsideItsShare(t *testing.T) {
	p, d := simPair(t, simConfig, Options{}, Options{})
	tokens := prompt(10*simChunk, 1)
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	Until(t, "paused at the end of the share", func() bool { return p.Engine.Load().Paused == 1 })
	if n := p.Arena.Stats().Leases; n != prefill.ShareChunks {
		t.Fatalf("%d leases while unpaired, want the share of %d", n, prefill.ShareChunks)
	}
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: engine.Params{MaxTokens: 5}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	got, _, _ := Collect(t, g)
	if c := <-answer; c.Code != room.Done {
		t.Fatalf("prefill ended with %v", c)
	}
	if want := sim.Expect(simConfig, tokens, 5); !slices.Equal(got, want) {
		t.Fatalf("generated %v, want %v", got, want)
	}
	Quiet(t, p, d)
}

func TestAnUnpairedRoomIsEvictedAndStillSucceedsWhenItsDecodeComesLate(t *testing.T) {
	// The short prompt is computed whole before it is evicted, the long one pauses.
	for _, n := range []int{simChunk, 5 * simChunk} {
		evictedAndLate(t, n)
	}
}

func evictedAndLate(t *testing.T, n int) {
	p, d := simPair(t, simConfig, Options{Limits: room.Limits{Ready: 50 * time.Millisecond}}, Options{})
	tokens := prompt(n, 1)
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	Until(t, "admitted early", func() bool { return p.Counts()[room.Computing] == 1 })
	Until(t, "evicted", func() bool {
		held, _ := p.Engine.Cells()
		return p.Counts()[room.Bootstrapping] == 1 && held == 0 && p.Arena.Stats().Leases == 0
	})
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: engine.Params{MaxTokens: 5}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	got, dc, _ := Collect(t, g)
	if c := <-answer; c.Code != room.Done || dc.Code != room.Done || !slices.Equal(got, sim.Expect(simConfig, tokens, 5)) {
		t.Fatalf("prefill %v, decode %v, tokens %v", c, dc, got)
	}
	Quiet(t, p, d)
}

// TestAnAbortInAnyStateFreesEverythingOnBothSides holds a request in each state
// by slow or frozen engines, aborts it there, and wants both workers back at
// their baseline. It guards against leaks such as SGLang #9817 and #17483, where
// one state had no path to the memory it held.
func TestAnAbortInAnyStateFreesEverythingOnBothSides(t *testing.T) {
	slow := simConfig
	slow.CallTime = 2 * time.Millisecond
	slow.TokenTime = 200 * time.Microsecond
	for _, side := range []string{"decode's leg", "prefill's leg", "the router's abort"} {
		for _, st := range []room.State{room.Prealloc, room.WaitingForInput, room.Transferring, room.Success} {
			t.Run(fmt.Sprintf("%s, %s", side, st), func(t *testing.T) {
				p, d := simPair(t, slow, Options{}, Options{})
				if st == room.Prealloc { // decode is full
					local, refused := d.Begin(decode.Request{RID: id.NewRID(), Tokens: prompt(900, 9), Params: engine.Params{MaxTokens: 100}, Due: time.Now().Add(Wait)})
					if refused != nil {
						t.Fatal(refused)
					}
					defer func() {
						Collect(t, local)
						Quiet(t, p, d)
					}()
				}
				var thaw func()
				if st == room.WaitingForInput {
					thaw = p.Backend.(*sim.Backend).Freeze()
				}
				tokens := prompt(12*simChunk, 2)
				rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
				legCtx, dropLeg := context.WithCancel(t.Context())
				defer dropLeg()
				answer := make(chan *room.Cause, 1)
				go func() {
					answer <- p.Serve(legCtx, prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
				}()
				g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: engine.Params{MaxTokens: 400}, Due: due})
				if refused != nil {
					t.Fatal(refused)
				}
				Until(t, "decode in "+st.String(), func() bool { return d.Counts()[st] == 1 })
				switch side {
				case "decode's leg":
					d.Abort(rid, rm, room.Because(room.LegLost, "test"))
				case "prefill's leg":
					dropLeg()
				default:
					why := room.Because(room.AbortRequest, "test")
					d.Abort(rid, 0, why)
					p.Abort(rid, 0, why)
				}
				if thaw != nil {
					thaw()
				}
				if side == "prefill's leg" && (st == room.Success || st == room.Prealloc) {
					d.Abort(rid, rm, room.Because(room.AbortRequest, "the router couples the fates"))
				}
				if st == room.Prealloc {
					p.Abort(rid, rm, room.Because(room.AbortRequest, "the router couples the fates"))
				}
				_, dc, _ := Collect(t, g)
				if dc.Outcome() != room.Aborted || dc.Failure() {
					t.Errorf("decode ended with %v, want aborted and no failure", dc)
				}
				if pc := <-answer; st != room.Success && pc.Outcome() != room.Aborted {
					t.Errorf("prefill ended with %v, want aborted", pc)
				}
				if st != room.Prealloc {
					Quiet(t, p, d)
				}
			})
		}
	}
}

func TestADecodeThatDisappearsEndsPrefillsRoomsAndTheNextOneIsServed(t *testing.T) {
	slow := simConfig
	slow.CallTime = 5 * time.Millisecond
	p := NewPrefill(t, newSim(t, slow), Options{})
	d := NewDecode(t, newSim(t, slow), Options{}, To(p))
	tokens := prompt(20*simChunk, 3)
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	if _, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: engine.Params{MaxTokens: 5}, Due: due}); refused != nil {
		t.Fatal(refused)
	}
	Until(t, "transferring", func() bool { return p.Counts()[room.Transferring] == 1 })
	d.group.Stop(nil)
	d.group.Wait()
	c := <-answer
	if c.Outcome() != room.PeerLost {
		t.Fatalf("prefill ended with %v, want peer_lost", c)
	}
	Until(t, "prefill back at its baseline", func() bool { return idle(p.Counts(), p.Engine, p.Arena) })

	next := NewDecode(t, newSim(t, slow), Options{}, To(p))
	got, dc, _ := Run(t, p, next, tokens, engine.Params{MaxTokens: 5})
	if dc.Code != room.Done || !slices.Equal(got, sim.Expect(slow, tokens, 5)) {
		t.Fatalf("after the restart: %v, %v", dc, got)
	}
	Quiet(t, p, next)
}

func TestTheOtherTokensOfALegAreATokenizationMismatchForBoth(t *testing.T) {
	p, d := simPair(t, simConfig, Options{}, Options{})
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: prompt(50, 1), Due: due})
	}()
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: prompt(50, 2), Params: engine.Params{MaxTokens: 5}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	tokens, dc, _ := Collect(t, g)
	if pc := <-answer; pc.Code != room.TokenizationMismatch || dc.Code != room.TokenizationMismatch || len(tokens) > 0 {
		t.Fatalf("prefill %v, decode %v, tokens %v; want tokenization_mismatch twice and no token", pc, dc, tokens)
	}
	Quiet(t, p, d)
}

func TestNoTokenIsSeenBeforeTheHandOverIsComplete(t *testing.T) {
	// One token needs no KV, so decode's engine could answer by itself at once.
	p, d := simPair(t, simConfig, Options{}, Options{})
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	tokens := prompt(1, 1)
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: engine.Params{MaxTokens: 3}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	Until(t, "decode's engine has finished", func() bool { return d.Engine.Load() == engine.Load{} && d.Counts()[room.WaitingForInput] == 1 })
	if got, ended := g.Take(); len(got) != 0 || ended {
		t.Fatalf("tokens %v, ended %v before prefill's leg came", got, ended)
	}
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	got, dc, _ := Collect(t, g)
	if pc := <-answer; dc.Code != room.Done || pc.Code != room.Done || !slices.Equal(got, sim.Expect(simConfig, tokens, 3)) {
		t.Fatalf("decode %v, prefill %v, tokens %v", dc, pc, got)
	}
	Quiet(t, p, d)
}
