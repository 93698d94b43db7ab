package pair

import (
	"fmt"
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

func TestFourChoicesCostOneHandOver(t *testing.T) {
	p, d := simPair(t, simConfig, Options{}, Options{})
	for _, n := range []int{1, 2, 6*simChunk + 3} {
		before := d.Sink.Stats().Chunks
		tokens := prompt(n, n)
		rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
		answer := make(chan *room.Cause, 1)
		go func() {
			answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
		}()
		g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, N: 4, Params: engine.Params{MaxTokens: 5}, Due: due})
		if refused != nil {
			t.Fatal(refused)
		}
		want := sim.Expect(simConfig, tokens, 5)
		for i, choice := range CollectAll(t, g) {
			if choice.Cause.Code != room.Done || !slices.Equal(choice.Tokens, want) {
				t.Fatalf("n = %d, choice %d: %v, %v; want %v", n, i, choice.Cause, choice.Tokens, want)
			}
		}
		if c := <-answer; c.Code != room.Done {
			t.Fatalf("prefill ended with %v", c)
		}
		Quiet(t, p, d)
		if chunks, one := d.Sink.Stats().Chunks-before, max(1, (n-1+simChunk-1)/simChunk); int(chunks) != one {
			t.Fatalf("n = %d: %d chunks travelled, want the %d of one hand-over", n, chunks, one)
		}
	}
}

// tooLate is an engine whose first sequences have ended when others are to come after
// them, and whose Done has not been heard yet.
type tooLate struct{ engine.Engine }

func (e tooLate) Admit(r *engine.Request, h engine.Handler) (*engine.Seq, error) {
	if r.After != nil {
		return nil, fmt.Errorf("the sequence whose prompt it shares: %w", engine.ErrEnded)
	}
	return e.Engine.Admit(r, h)
}

func TestChoicesWhosePromptIsGoneAlreadyComputeTheirOwn(t *testing.T) {
	slow := simConfig
	slow.CallTime = 2 * time.Millisecond // the first choice lives while the others are admitted
	p, d := simPair(t, slow, Options{}, Options{Wrap: func(e engine.Engine) engine.Engine { return tooLate{e} }})
	tokens := prompt(40, 1)
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, N: 3, Params: engine.Params{MaxTokens: 6}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	want := sim.Expect(slow, tokens, 6)
	for i, choice := range CollectAll(t, g) {
		if choice.Cause.Code != room.Done || !slices.Equal(choice.Tokens, want) {
			t.Errorf("choice %d: %v, %v; want %v", i, choice.Cause, choice.Tokens, want)
		}
	}
	if c := <-answer; c.Code != room.Done {
		t.Errorf("prefill ended with %v", c)
	}
	Quiet(t, p, d)
}

func TestAnAbortEndsAllChoices(t *testing.T) {
	slow := simConfig
	slow.CallTime = 2 * time.Millisecond
	p, d := simPair(t, slow, Options{}, Options{})
	tokens := prompt(40, 1)
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, N: 3, Params: engine.Params{MaxTokens: 200}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	<-answer
	Until(t, "three choices run", func() bool { return d.Engine.Load().Decoding == 3 })
	d.Abort(rid, rm, room.Because(room.ClientGone, "test"))
	for i, choice := range CollectAll(t, g) {
		if choice.Cause.Code != room.ClientGone {
			t.Fatalf("choice %d ended with %v", i, choice.Cause)
		}
	}
	Quiet(t, p, d)
}

func TestAChoiceWhoseTextIsCompleteEndsAlone(t *testing.T) {
	slow := simConfig
	slow.CallTime = time.Millisecond
	p, d := simPair(t, slow, Options{}, Options{})
	tokens := prompt(40, 1)
	rid, rm, due := id.NewRID(), id.NewRoom(), time.Now().Add(Wait)
	answer := make(chan *room.Cause, 1)
	go func() {
		answer <- p.Serve(t.Context(), prefill.Request{RID: rid, Room: rm, Tokens: tokens, Due: due})
	}()
	g, refused := d.Begin(decode.Request{RID: rid, Room: rm, Host: "prefill", Port: 1, Tokens: tokens, N: 2, Params: engine.Params{MaxTokens: 100}, Due: due})
	if refused != nil {
		t.Fatal(refused)
	}
	<-answer
	Until(t, "both choices run", func() bool { return d.Engine.Load().Decoding == 2 })
	g.Abort(&room.Cause{Code: room.Done})
	all := CollectAll(t, g)
	if all[0].Cause.Code != room.Done || len(all[0].Tokens) == 100 {
		t.Fatalf("the first choice ended with %v after %d tokens", all[0].Cause, len(all[0].Tokens))
	}
	if all[1].Cause.Code != room.Done || len(all[1].Tokens) != 100 {
		t.Fatalf("the second choice ended with %v after %d tokens, want all 100", all[1].Cause, len(all[1].Tokens))
	}
	Quiet(t, p, d)
}

func TestTheSecondTurnOfAChatComputesAndTransfersOnlyItsNewTokens(t *testing.T) {
	for _, window := range []int{0, 2 * simChunk} {
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) { secondTurn(t, window) })
	}
}

func secondTurn(t *testing.T, window int) {
	config := simConfig
	config.Window = window
	p, d := simPair(t, config, Options{}, Options{})
	first := prompt(9*simChunk+11, 7) // with the answer's tokens in decode's cache: ten chunks
	out, _, _ := Run(t, p, d, first, engine.Params{MaxTokens: 6})
	Quiet(t, p, d)

	second := append(append(slices.Clone(first), out...), prompt(20, 99)...)
	before := d.Sink.Stats().Chunks
	got, dc, pc := Run(t, p, d, second, engine.Params{MaxTokens: 6})
	if want := sim.Expect(config, second, 6); dc.Code != room.Done || pc.Code != room.Done || !slices.Equal(got, want) {
		t.Fatalf("decode %v, prefill %v, tokens %v; want %v", dc, pc, got, want)
	}
	total := (len(second) - 1 + simChunk - 1) / simChunk
	if travelled := int(d.Sink.Stats().Chunks - before); travelled != total-10 {
		t.Fatalf("%d chunks travelled, want %d: decode has 10 of %d", travelled, total-10, total)
	}
	if reused := p.Engine.Cache().Reused; int(reused) != len(first)-1 {
		t.Fatalf("prefill reused %d tokens of the first turn's %d", reused, len(first)-1)
	}
	Quiet(t, p, d)
}
