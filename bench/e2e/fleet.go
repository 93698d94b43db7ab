package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/fleet"
)

// systems are tandem serve and a pair behind a router.
type systems struct {
	fleet.Fleet
	serve string
	pair  fleet.Pair
}

// start starts both. Prefill has serve's CPUs, so that a prompt is computed by as
// much on both; decode has its own, if there are more.
func start(ctx context.Context, c config) (*systems, error) {
	t := fleet.Tandem{Path: c.tandem, Model: c.model, Slots: 4, Context: 2*c.tokens + 2048}
	first, second := fleet.Share(c.cpus, 0, c.threads), fleet.Share(c.cpus, c.threads, c.threads)
	s := &systems{}
	err := func() (err error) {
		if s.serve, err = s.Serve(ctx, t, c.threads, first); err != nil {
			return err
		}
		if s.pair, err = s.Pair(ctx, t, c.threads, first, second); err != nil {
			return err
		}
		if err = s.Ready(ctx); err != nil {
			return err
		}
		return fleet.PinSelf(fleet.Rest(c.cpus, first))
	}()
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// placed says where they compute.
func placed(c config) string {
	first, second := fleet.Share(c.cpus, 0, c.threads), fleet.Share(c.cpus, c.threads, c.threads)
	return fmt.Sprintf("serve and prefill on %s, decode on %s, client on %s", fleet.Words(first), fleet.Words(second), fleet.Words(fleet.Rest(c.cpus, first)))
}

// request sends a prompt to serve or to the pair.
func (s *systems) request(ctx context.Context, which, prompt string, generate int) (client.Sample, error) {
	url := s.serve
	if which == "pd" {
		url = s.pair.Router
	}
	x, err := client.Complete(ctx, url, client.Request{Prompt: prompt, Generate: generate})
	if err == nil && x.Generated != generate {
		err = fmt.Errorf("%d tokens of %d were generated", x.Generated, generate)
	}
	if err == nil && x.Cached > 0 {
		err = fmt.Errorf("%d prompt tokens were found in a cache: not the same work", x.Cached)
	}
	return x, err
}

// record is what /debug/rooms/{rid} says.
type record struct {
	Begin time.Time `json:"begin"`
	First float64   `json:"first_token_ms"`
	Steps []struct {
		At    float64 `json:"at_ms"`
		State string  `json:"state"`
	} `json:"steps"`
}

// tail returns the time from prefill's last computed token to decode's first
// generated one. Both processes are on this machine and share its clock.
func (s *systems) tail(ctx context.Context, rid string) (time.Duration, error) {
	p, err := fetch(ctx, s.pair.Prefill, rid)
	if err != nil {
		return 0, err
	}
	d, err := fetch(ctx, s.pair.Decode, rid)
	if err != nil {
		return 0, err
	}
	for _, x := range p.Steps {
		if x.State == "computed" {
			first := d.Begin.Add(time.Duration(d.First * float64(time.Millisecond)))
			return first.Sub(p.Begin.Add(time.Duration(x.At * float64(time.Millisecond)))), nil
		}
	}
	return 0, fmt.Errorf("prefill's record of %s has no computed step: %+v", rid, p)
}

func fetch(ctx context.Context, url, rid string) (*record, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/debug/rooms/"+rid, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var all []record
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s has no record of %s: %v", url, rid, err)
	}
	return &all[0], nil
}
