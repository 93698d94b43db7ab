package pair

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/prefill"
	"github.com/tandem-llm/tandem/internal/room"
)

// Found by the gauntlet with memory for hardly one request: a room that computes ahead
// of its READY had all of prefill's memory, decode had all of its own for another room,
// and nothing moved for T_ready, once for each room that was ahead.
func TestARoomWithoutREADYMakesWayForOneThatHasIt(t *testing.T) {
	never := room.Limits{Ready: Wait} // or a quarter of what remains: far away
	p, d := simPair(t, simConfig, Options{ArenaBytes: 3 * 4096, Limits: never}, Options{})
	serve := func(key int) (tokens []engine.Token, both func()) {
		tokens = prompt(5*simChunk, key)
		rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(2*Wait)
		answer := make(chan *room.Cause, 1)
		go func() {
			answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
		}()
		return tokens, func() {
			t.Helper()
			g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, Params: engine.Params{MaxTokens: 5}, Due: due})
			if refused != nil {
				t.Fatal(refused)
			}
			got, dc, _ := Collect(t, g)
			if c := <-answer; c.Code != room.Done || dc.Code != room.Done || !slices.Equal(got, sim.Expect(simConfig, tokens, 5)) {
				t.Fatalf("prefill %v, decode %v, tokens %v", c, dc, got)
			}
		}
	}
	_, first := serve(1)
	Until(t, "the first room computes ahead and has the arena", func() bool {
		st := p.Arena.Stats()
		return p.Counts()[room.Computing] == 1 && st.Free < p.Engine.ChunkBytes(simChunk)
	})
	_, second := serve(2)
	began := time.Now()
	second()
	if took := time.Since(began); took > Wait/6 {
		t.Errorf("the second room was served after %v: the first did not make way", took)
	}
	first()
	Quiet(t, p, d)
}
