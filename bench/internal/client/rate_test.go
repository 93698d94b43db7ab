package client

import (
	"math"
	"strings"
	"testing"
	"time"
)

// ticking is a stream with a token every 100 ms from its first on.
func ticking(began time.Time, first time.Duration, n int) Sample {
	s := Sample{Began: began, Generated: n}
	for i := range n {
		s.Events = append(s.Events, Event{first + time.Duration(i)*100*time.Millisecond, 4})
	}
	return s
}

func TestRateCountsOnlyWhileAllRun(t *testing.T) {
	began := time.Now()
	streams := []Sample{ticking(began, 0, 40), ticking(began, 1050*time.Millisecond, 40)}
	// Alone the first was twice as fast.
	for i := range 10 {
		streams[0].Events[i].At = 500*time.Millisecond + time.Duration(i)*50*time.Millisecond
	}
	r, err := Rate(streams)
	if err != nil || math.Abs(r-20) > 0.01 {
		t.Errorf("%v tokens/s, %v; want 20", r, err)
	}
}

func TestRateKnowsTokensThatCameTogether(t *testing.T) {
	s := ticking(time.Now(), time.Second, 40)
	s.Generated = 80 // each event held two
	if r, err := Rate([]Sample{s}); err != nil || math.Abs(r-20) > 0.01 {
		t.Errorf("%v tokens/s, %v; want 20", r, err)
	}
}

func TestRateRefusesStreamsThatHardlyMeet(t *testing.T) {
	began := time.Now()
	_, err := Rate([]Sample{ticking(began, 0, 20), ticking(began, 1500*time.Millisecond, 20)})
	if err == nil || !strings.Contains(err.Error(), "generate more tokens") {
		t.Error(err)
	}
}

func TestAStreamIsReadWithItsUsage(t *testing.T) {
	s := Sample{Began: time.Now()}
	begun := 0
	err := s.read(strings.NewReader(`data: {"id":"cmpl-td-1","choices":[{"text":"a"}]}

: a heartbeat

data: {"choices":[{"text":"b","finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}

data: [DONE]
`), func() { begun++ })
	if err != nil || begun != 1 || s.Text != "ab" || s.Prompt != 5 || s.Generated != 2 || s.Cached != 3 || s.RID != "td-1" || len(s.Events) != 2 {
		t.Errorf("%+v, %v, begun %d", s, err, begun)
	}
	for body, want := range map[string]string{
		`data: {"choices":[{"text":"a"}]}`:         "without [DONE]",
		"data: [DONE]":                             "no usage",
		`data: {"error":{"message":"no such"}}`:    "no such",
		"data: {\"choices\":[]}\n\ndata: nonsense": "nonsense",
	} {
		if err := (&Sample{}).read(strings.NewReader(body), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
