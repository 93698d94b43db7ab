package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/fleet"
)

// The systems, as the report names them.
const (
	llamaServer = "llama-server"
	serve       = "tandem serve"
	pair        = "pair"
)

// bench is one run.
type bench struct {
	config
	rep *report
}

// system is one of the compared servers.
type system struct{ name, url string }

// measure runs the tests. The report has what was measured before an error.
func measure(ctx context.Context, c config) (*report, error) {
	b := &bench{config: c, rep: &report{Model: c.model, Threads: c.threads, Kernels: map[string]string{}, Equal: map[string]*equal{}}}
	var err error
	if b.file, err = fleet.ModelFile(ctx, c.tandem, c.model); err != nil {
		return nil, err
	}
	if c.llama != "" {
		if b.rep.LlamaServer, err = fleet.LlamaServerVersion(ctx, c.llama); err != nil {
			return nil, err
		}
	}
	for _, t := range []struct {
		name string
		run  func(context.Context) error
	}{{"decode", b.decode}, {"prefill", b.prefillTest}, {"mixed", b.mixed}, {"chat", b.chatTest}} {
		if !slices.Contains(c.only, t.name) {
			continue
		}
		if err := t.run(ctx); err != nil {
			return b.rep, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return b.rep, nil
}

// size is what the systems of one test are started with.
type size struct {
	slots, tokens  int // tokens of each slot
	single, worker int // threads: of a single server, of each worker of the pair
	pair, cache    bool
}

// start starts the systems, llama-server first if it takes part, and pins this
// process to what they leave free.
func (b *bench) start(ctx context.Context, s size) (f *fleet.Fleet, systems []system, err error) {
	perSlot := (s.tokens + 255) / 256 * 256 // both round up to this
	all := perSlot * s.slots
	one := fleet.Share(b.cpus, 0, s.single)
	f = &fleet.Fleet{}
	defer func() {
		if err != nil {
			f.Stop()
		}
	}()
	used := one
	if b.llama != "" {
		url, err := f.LlamaServer(ctx, fleet.LlamaServer{Path: b.llama, Model: b.file, Slots: s.slots, Context: all, Cache: s.cache}, s.single, one)
		if err != nil {
			return f, nil, err
		}
		systems = append(systems, system{llamaServer, url})
	}
	t := fleet.Tandem{Path: b.tandem, Model: b.model, Slots: s.slots, Context: all}
	url, err := f.Serve(ctx, t, s.single, one)
	if err != nil {
		return f, nil, err
	}
	systems = append(systems, system{serve, url})
	if s.pair {
		prefill, decode := fleet.Share(b.cpus, 0, s.worker), fleet.Share(b.cpus, s.worker, s.worker)
		p, err := f.Pair(ctx, t, s.worker, prefill, decode)
		if err != nil {
			return f, nil, err
		}
		systems = append(systems, system{pair, p.Router})
		used = append(append(slices.Clone(used), prefill...), decode...)
	}
	if err := f.Ready(ctx); err != nil {
		return f, nil, err
	}
	for name, k := range f.Kernels() {
		b.rep.Kernels[name] = k
	}
	own := fleet.Rest(b.cpus, used)
	if err := fleet.PinSelf(own); err != nil {
		return f, nil, err
	}
	note := fmt.Sprintf("%d compute thread(s) on %s", s.single, fleet.Words(one))
	if s.pair {
		note += fmt.Sprintf("; pair: prefill %d on %s, decode %d on %s", s.worker, fleet.Words(fleet.Share(b.cpus, 0, s.worker)), s.worker, fleet.Words(fleet.Share(b.cpus, s.worker, s.worker)))
	}
	b.rep.placed = note + fmt.Sprintf("; client on %s", fleet.Words(own))
	return f, systems, nil
}

// rotated returns the systems in the order of the i-th pair.
func rotated(systems []system, i int) []system {
	k := ((i % len(systems)) + len(systems)) % len(systems)
	return append(slices.Clone(systems[k:]), systems[:k]...)
}

// same makes sure that the compared work was the same.
func same(name string, s client.Sample, prompt, generate int, cold bool) error {
	switch {
	case s.Prompt != prompt:
		return fmt.Errorf("%s counts %d prompt tokens of %d: not the same work", name, s.Prompt, prompt)
	case s.Generated != generate:
		return fmt.Errorf("%s generated %d tokens of %d: not the same work", name, s.Generated, generate)
	case cold && s.Cached > 0:
		return fmt.Errorf("%s found %d prompt tokens in a cache: not the same work", name, s.Cached)
	}
	return nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "\r\033[K"+format, args...) }

func progressed() { fmt.Fprintln(os.Stderr) }
