package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
)

// echo is how long after the fleet is whole again a request may still end because of
// a fault: one that was waiting behind it.
const echo = 2 * time.Second

// member is one process at one moment.
type member struct {
	Name             string
	PID              int
	Resident         int64 // bytes
	Goroutines, Open float64
}

// sample is everything at one moment.
type sample struct {
	At      time.Time
	Members []member
	Open    int64 // requests under way
}

// journal is what was seen.
type journal struct {
	c     config
	rate  float64
	start time.Time

	mu      sync.Mutex
	harms   []harm
	samples []sample
	all     []brief
	unwell  []ending
	texts   map[int]string // longest seen for each prompt
	wrong   []string
}

// brief is what is kept of every ending.
type brief struct {
	at    time.Time
	first time.Duration
	code  string
}

func newJournal(c config, rate float64) *journal {
	return &journal{c: c, rate: rate, start: time.Now(), texts: map[int]string{}}
}

func (j *journal) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
	say("WRONG: "+format, args...)
}

func (j *journal) began(name string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.harms = append(j.harms, harm{Began: time.Now(), Name: name})
	return len(j.harms) - 1
}

func (j *journal) healed(n int, what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := &j.harms[n]
	h.Healed, h.What = time.Now(), what
	say("%5.1f min  %s: %s; whole again after %v", time.Since(j.start).Minutes(), h.Name, what, h.Healed.Sub(h.Began).Round(10*time.Millisecond))
}

// sample takes what has ended, and what the members use.
func (j *journal) sample(members []watch.Process, metrics watch.Snapshot, l *load) {
	s := sample{At: time.Now(), Open: l.open.Load()}
	for _, p := range members {
		if m, ok := metrics[p.Name]; ok && p.PID > 0 && m["go_goroutines"] > 0 {
			s.Members = append(s.Members, member{p.Name, p.PID, resident(p.PID), m["go_goroutines"], m["process_open_fds"]})
		}
	}
	endings := l.take()
	for _, e := range endings {
		j.ended(e)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.samples = append(j.samples, s)
}

func (j *journal) ended(e ending) {
	if e.Took > deadline+grace {
		j.fault("a request took %v, its deadline was %v (%s %s)", e.Took.Round(time.Millisecond), deadline, e.Code, e.Detail)
	}
	j.mu.Lock()
	j.all = append(j.all, brief{e.At, e.First, e.Code})
	if e.Code != "ok" && e.Code != "left" {
		j.unwell = append(j.unwell, e)
	}
	known := j.texts[e.ask.prompt]
	short, long := e.text, known
	if len(short) > len(long) {
		short, long = long, short
	}
	if e.Code == "ok" {
		j.texts[e.ask.prompt] = long
	}
	j.mu.Unlock()
	// A real model's greedy text depends on what else is in the batch; the simulator's does not.
	if j.c.engine == "sim" && e.Code == "ok" && (!strings.HasPrefix(long, short) || e.text == "") {
		j.fault("prompt %d gave %.80q, before %.80q", e.ask.prompt, e.text, known)
	}
}

// judge compares all that did not end well with the faults, and looks for growth.
func (j *journal) judge() {
	var unexplained []string
	for _, e := range j.unwell {
		began := e.At.Add(-e.Took)
		if e.Code == "cut" || e.Code == "unreadable" || !slices.ContainsFunc(j.harms, func(h harm) bool {
			return !e.At.Before(h.Began) && (h.Healed.IsZero() || !began.After(h.Healed.Add(echo)))
		}) {
			unexplained = append(unexplained, fmt.Sprintf("%s at %.1f min after %v: %s", e.Code, e.At.Sub(j.start).Minutes(), e.Took.Round(time.Millisecond), e.Detail))
		}
	}
	if len(unexplained) > 0 {
		j.fault("%d requests ended badly without a fault: %s", len(unexplained), strings.Join(unexplained[:min(5, len(unexplained))], "; "))
	}
	for _, g := range j.growth() {
		j.fault("%s", g)
	}
}

// Growth below these is noise: heaps breathe with the collector.
const (
	grownShare = 1.15
	grownBytes = 24 << 20
	tell       = 15 * time.Minute // a process must live so long to tell
)

// growth compares the first and the last quarter of every process's life.
func (j *journal) growth() (grown []string) {
	lives := map[int][]member{}
	span := map[int][2]time.Time{}
	for _, s := range j.samples {
		for _, m := range s.Members {
			if len(lives[m.PID]) == 0 {
				span[m.PID] = [2]time.Time{s.At, s.At}
			}
			lives[m.PID] = append(lives[m.PID], m)
			span[m.PID] = [2]time.Time{span[m.PID][0], s.At}
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(lives)) {
		life := lives[pid]
		if lived := span[pid][1].Sub(span[pid][0]); lived < tell || len(life) < 12 {
			continue
		}
		q := len(life) / 4
		for _, what := range []struct {
			name  string
			of    func(member) float64
			least float64
		}{
			{"resident bytes", func(m member) float64 { return float64(m.Resident) }, grownBytes},
			{"goroutines", func(m member) float64 { return m.Goroutines }, 50},
			{"descriptors", func(m member) float64 { return m.Open }, 50},
		} {
			was, is := quantile(values(life[:q], what.of), 0.5), quantile(values(life[len(life)-q:], what.of), 0.5)
			if is > was*grownShare && is-was > what.least {
				grown = append(grown, fmt.Sprintf("%s (pid %d) has grown: %s %.0f, then %.0f", life[0].Name, pid, what.name, was, is))
			}
		}
	}
	return grown
}

func values(life []member, of func(member) float64) []float64 {
	out := make([]float64, len(life))
	for i, m := range life {
		out[i] = of(m)
	}
	return out
}

// quantile returns the q-quantile, 0 of nothing.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(q*float64(len(v))))]
}
