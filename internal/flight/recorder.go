package flight

import (
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

const (
	// DefaultKeep ended records stay behind.
	DefaultKeep = 4096
	// MaxSteps transitions are kept per record; a room has far fewer.
	MaxSteps = 64
)

// Recorder holds the records of one process.
type Recorder struct {
	role  string
	keep  int
	onEnd func(*Record)

	mu    sync.Mutex
	live  map[*Record]struct{}
	ended []*Record // oldest first, a ring once full
	next  int
}

// New returns a recorder. keep 0 means DefaultKeep. onEnd, if not nil, hears of
// every ending once, and must return at once.
func New(role string, keep int, onEnd func(*Record)) *Recorder {
	if keep <= 0 {
		keep = DefaultKeep
	}
	return &Recorder{role: role, keep: keep, onEnd: onEnd, live: make(map[*Record]struct{})}
}

// Record is one request on one process. Its methods are safe for concurrent use.
type Record struct {
	rec   *Recorder
	RID   id.RID
	Room  id.Room // 0 if the request has none
	Begin time.Time

	mu        sync.Mutex
	steps     []Step
	ended     time.Time
	cause     *room.Cause
	prompt    int
	generated int
	first     time.Time
	peer      id.Incarnation
}

// Step is one transition.
type Step struct {
	At    float64 `json:"at_ms"` // since the request came
	State string  `json:"state"`
	On    string  `json:"on"`
	Note  string  `json:"note,omitempty"`
}

// Open begins a request's record.
func (r *Recorder) Open(rid id.RID, rm id.Room, prompt int) *Record {
	rec := &Record{rec: r, RID: rid, Room: rm, Begin: time.Now(), prompt: prompt}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[rec] = struct{}{}
	return rec
}

// Note adds a transition.
func (c *Record) Note(state, on, note string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(state, on, note)
}

func (c *Record) note(state, on, note string) {
	if len(c.steps) < MaxSteps {
		c.steps = append(c.steps, Step{At: ms(time.Since(c.Begin)), State: state, On: on, Note: note})
	}
}

// Peer notes the other worker.
func (c *Record) Peer(p id.Incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peer = p
}

// Token counts generated tokens; the first one's time is kept.
func (c *Record) Token() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generated == 0 {
		c.first = time.Now()
		c.note("Generating", "first token", "")
	}
	c.generated++
}

// Finalize ends the request, once: the first cause wins and true is returned;
// later calls change nothing.
func (c *Record) Finalize(cause *room.Cause) bool {
	if cause == nil {
		cause = &room.Cause{Code: room.Done}
	}
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return false
	}
	c.cause, c.ended = cause, time.Now()
	c.note("Ended", string(cause.Code), "")
	c.mu.Unlock()
	c.rec.end(c)
	return true
}

func (r *Recorder) end(c *Record) {
	r.mu.Lock()
	delete(r.live, c)
	if len(r.ended) < r.keep {
		r.ended = append(r.ended, c)
	} else {
		r.ended[r.next] = c
		r.next = (r.next + 1) % r.keep
	}
	r.mu.Unlock()
	if r.onEnd != nil {
		r.onEnd(c)
	}
}

// View is a record as JSON shows it.
type View struct {
	RID       id.RID  `json:"rid"`
	Room      id.Room `json:"room,omitempty,string"` // a string: JSON readers lose the low bits of such numbers
	Role      string  `json:"role"`
	Begin     string  `json:"begin"`
	Live      bool    `json:"live"`
	Outcome   string  `json:"outcome,omitempty"`
	Code      string  `json:"code,omitempty"`
	Detail    string  `json:"detail,omitempty"`
	Peer      string  `json:"peer,omitempty"`
	Prompt    int     `json:"prompt_tokens"`
	Generated int     `json:"generated_tokens"`
	FirstMS   float64 `json:"first_token_ms,omitempty"`
	TotalMS   float64 `json:"total_ms"`
	Steps     []Step  `json:"steps"`
}

// View returns the record as it is now.
func (c *Record) View() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := View{RID: c.RID, Room: c.Room, Role: c.rec.role, Begin: c.Begin.UTC().Format(time.RFC3339Nano), Live: c.cause == nil,
		Prompt: c.prompt, Generated: c.generated, Steps: append([]Step(nil), c.steps...)}
	end := time.Now()
	if c.cause != nil {
		end = c.ended
		v.Outcome, v.Code, v.Detail = c.cause.Outcome().String(), string(c.cause.Code), c.cause.Detail
	}
	if !c.first.IsZero() {
		v.FirstMS = ms(c.first.Sub(c.Begin))
	}
	if c.peer != 0 {
		v.Peer = c.peer.String()
	}
	v.TotalMS = ms(end.Sub(c.Begin))
	return v
}

// Cause returns why the request ended, nil while it lives.
func (c *Record) Cause() *room.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Timing returns when the first token came (0 if none did), the whole time until
// the end (or now), and the tokens generated.
func (c *Record) Timing() (first, total time.Duration, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.first.IsZero() {
		first = c.first.Sub(c.Begin)
	}
	total = time.Since(c.Begin)
	if c.cause != nil {
		total = c.ended.Sub(c.Begin)
	}
	return first, total, c.generated
}

// List returns the live records and the last n ended ones, newest first.
func (r *Recorder) List(n int) []View {
	r.mu.Lock()
	all := make([]*Record, 0, len(r.live)+n)
	for c := range r.live {
		all = append(all, c)
	}
	for i := 0; i < len(r.ended) && i < n; i++ {
		all = append(all, r.ended[(r.next+len(r.ended)-1-i)%len(r.ended)])
	}
	r.mu.Unlock()
	views := make([]View, len(all))
	for i, c := range all {
		views[i] = c.View()
	}
	return views
}

// Find returns the records of a request id or a room number, newest first.
func (r *Recorder) Find(key string) []View {
	var found []View
	for _, v := range r.List(r.keep) {
		if string(v.RID) == key || v.Room != 0 && v.Room.String() == key {
			found = append(found, v)
		}
	}
	return found
}

// Live returns how many requests have not ended.
func (r *Recorder) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
