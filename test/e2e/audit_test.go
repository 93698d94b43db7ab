//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router"
)

// records reads the router's access log: every request that has ended, whichever
// router process of the fleet had it.
func (f *fleet) records() []router.Record {
	f.t.Helper()
	var found []router.Record
	for _, path := range []string{f.access + ".1", f.access} {
		file, err := os.Open(path)
		if err != nil {
			continue // no router has run, or it had little to say
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r router.Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				f.t.Errorf("access log: %v: %.200s", err, lines.Text()) // the last line of a killed router is whole too: it is one write
				continue
			}
			found = append(found, r)
		}
		if err := lines.Err(); err != nil {
			f.t.Errorf("access log: %v", err)
		}
	}
	return found
}

// labelled returns the records of requests whose label begins so.
func (f *fleet) labelled(prefix string) []router.Record {
	f.t.Helper()
	return slices.DeleteFunc(f.records(), func(r router.Record) bool { return !strings.HasPrefix(r.Label, prefix) })
}

// audit checks what holds for every request whatever was done to the fleet, offline,
// when its processes have ended: one outcome, in time, with a cause that fits it, and
// nobody charged for an abort. It enters the fleet's row into the table.
func (f *fleet) audit() {
	all := f.records()
	r := row{scenario: f.t.Name(), requests: len(all), codes: map[string]int{}, moments: f.moments, quiet: f.quiet}
	seen := map[id.RID]bool{}
	for _, rec := range all {
		r.codes[rec.Code]++
		if err := sound(rec); err != nil {
			f.t.Errorf("request %s (%s): %v: %+v", rec.RID, rec.Label, err, rec)
		}
		if seen[rec.RID] {
			f.t.Errorf("request %s has ended twice", rec.RID)
		}
		seen[rec.RID] = true
	}
	if f.fault != nil {
		r.faults = f.fault.Done()
	}
	r.enter()
}

// sound says what is wrong with a request's record.
func sound(r router.Record) error {
	cause := &room.Cause{Code: room.Code(r.Code)}
	switch {
	case r.Outcome != cause.Outcome().String() || r.Code == "":
		return fmt.Errorf("outcome %q with code %q", r.Outcome, r.Code)
	case r.Took > r.Deadline+slack.Seconds():
		return fmt.Errorf("it ended after %.3f s, its deadline was %.3f s", r.Took, r.Deadline)
	case r.Code == string(room.Bug):
		return fmt.Errorf("a fault of ours: %s", r.Detail)
	}
	for i, a := range r.Attempts {
		of := &room.Cause{Code: room.Code(a.Code)}
		switch {
		case a.Charged != "" && !of.Failure():
			return fmt.Errorf("attempt %d: %s is charged for %s", i, a.Charged, a.Code)
		case i+1 < len(r.Attempts) && !of.Retryable():
			return fmt.Errorf("attempt %d was tried again after %s", i, a.Code)
		}
	}
	return nil
}

// ends demands that the requests whose labels begin so are n, and that each ended by
// one of these codes. It returns how many ended by which.
func (f *fleet) ends(prefix string, n int, codes ...room.Code) map[string]int {
	f.t.Helper()
	found := map[string]int{}
	records := f.labelled(prefix)
	for _, r := range records {
		found[r.Code]++
		if !slices.Contains(codes, room.Code(r.Code)) {
			f.t.Errorf("%s ended %s (%s: %s), want one of %v", r.Label, r.Outcome, r.Code, r.Detail, codes)
		}
	}
	if len(records) != n {
		f.t.Errorf("%d requests of %s ended, want %d: %v", len(records), prefix, n, slices.Sorted(maps.Keys(found)))
	}
	return found
}

// moment counts that something the scenario is about has come.
func (f *fleet) moment(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments[name]++
}
