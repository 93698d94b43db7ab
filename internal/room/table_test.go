package room

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/protocol.md instead of comparing it")

func TestNoCellOfTheTableIsEmpty(t *testing.T) {
	for _, side := range []Side{Prefill, Decode} {
		for _, s := range sideStates[side] {
			for _, e := range sideEvents[side] {
				c, ok := tables[side][s][e]
				if !ok || len(c.do) == 0 {
					t.Errorf("%s: %s × %s has no rule", side, s, e)
				}
			}
		}
	}
}

func TestARuleLeftOutOrWrittenTwiceIsRefused(t *testing.T) {
	refused := func(rules []rule) (bad bool) {
		defer func() { bad = recover() != nil }()
		expand(Decode, rules)
		return false
	}
	for i := range decodeRules {
		without := append(append([]rule(nil), decodeRules[:i]...), decodeRules[i+1:]...)
		if !refused(without) {
			t.Errorf("the table without rule %d (%s) was accepted", i, decodeRules[i].on)
		}
	}
	if !refused(append(decodeRules[:len(decodeRules):len(decodeRules)], decodeRules[0])) {
		t.Error("a cell filled twice was accepted")
	}
}

func TestTerminalStatesAreNeverLeft(t *testing.T) {
	for _, side := range []Side{Prefill, Decode} {
		for _, s := range []State{Success, Failed} {
			for e, c := range tables[side][s] {
				if c.next != stay {
					t.Errorf("%s: %s × %s leads to %s", side, s, e, c.next)
				}
			}
		}
	}
}

func TestEveryLiveStateHasADeadline(t *testing.T) {
	for _, side := range []Side{Prefill, Decode} {
		b := New(side, 4, Limits{})
		for _, s := range sideStates[side] {
			r := &Record{Leg: Leg{Room: 1, Deadline: 100}, State: s}
			if _, _, ok := b.due(r); !ok && s != Absent && !s.Terminal() {
				t.Errorf("%s: a room in %s waits without a timer", side, s)
			}
		}
	}
}

func TestEveryCodeHasAClass(t *testing.T) {
	for _, c := range Codes() {
		cause := Cause{Code: c}
		if cause.Outcome() == Aborted && cause.Failure() {
			t.Errorf("%s: an abort counts as a failure", c)
		}
	}
	unknown := Cause{Code: "from_a_newer_peer"}
	if unknown.Outcome() != Internal || unknown.Retryable() {
		t.Errorf("an unknown code is %s, retryable %v; want internal, not retryable", unknown.Outcome(), unknown.Retryable())
	}
}

func TestTheProtocolDocumentIsCurrent(t *testing.T) {
	const path = "../../docs/protocol.md"
	want := Markdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the tables say: run go generate ./internal/room", path)
	}
}
