package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/bench/internal/fleet"
)

// system is one pair behind as many routers as the descriptors of a process demand.
type system struct {
	fleet    *fleet.Fleet
	tandem   fleet.Tandem
	pair     fleet.Pair
	routers  []string
	longest  int // words of the longest prompt
	opened   atomic.Int64
	restedAt time.Time
}

// perStream descriptors: the client's connection and a leg to each worker.
const perStream = 3

// start runs a pair, and routers enough for so many streams.
func start(ctx context.Context, c config, streams int) (*system, error) {
	s := &system{fleet: &fleet.Fleet{}, tandem: fleet.Tandem{Path: c.tandem, Model: c.model, Slots: 16, Context: 8192}, longest: 400}
	routers := 1
	if limit := descriptors(); limit > 0 {
		routers = int(math.Ceil(float64(perStream*streams) / (0.9 * float64(limit))))
	}
	pair, err := s.fleet.Pair(ctx, s.tandem, 1, nil, nil)
	if err != nil {
		s.fleet.Stop()
		return nil, err
	}
	s.pair, s.routers = pair, []string{pair.Router}
	for range routers - 1 {
		url, err := s.fleet.Extra(ctx, s.tandem, pair)
		if err != nil {
			s.fleet.Stop()
			return nil, err
		}
		s.routers = append(s.routers, url)
	}
	if err := s.fleet.Ready(ctx); err != nil {
		s.fleet.Stop()
		return nil, err
	}
	return s, nil
}

func (s *system) processes() []watch.Process {
	ps := []watch.Process{{Name: "prefill", URL: s.pair.Prefill}, {Name: "decode", URL: s.pair.Decode}}
	for i, url := range s.routers {
		ps = append(ps, watch.Process{Name: fmt.Sprintf("router %d", i), URL: url})
	}
	return ps
}

var nouns = strings.Fields("river stone window garden letter captain winter engine market shadow bridge music paper island doctor kettle")

// words is a prompt that no other begins like.
func words(n, key int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Story %d.", key)
	for i := range n {
		fmt.Fprintf(&b, " %s", nouns[(i*i+i*7+key*13)%len(nouns)])
	}
	return b.String()
}

// body is one stream of a storm. The lengths differ, so that the streams are soon in
// different phases.
func (s *system) body(i int) []byte {
	n := int(float64(s.longest) / math.Pow(2.5, float64(i%4)))
	b, err := json.Marshal(map[string]any{"prompt": words(n, int(s.opened.Add(1))), "max_tokens": 500, "temperature": 0, "ignore_eos": true, "stream": true})
	if err != nil {
		panic(err) // strings and numbers: it cannot fail
	}
	return b
}
