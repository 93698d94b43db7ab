package router

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// who ended a request.
const (
	whoClient  = "client"
	whoRouter  = "router"
	whoPrefill = "prefill"
	whoDecode  = "decode"
)

// Record is the truth about one accepted request, live or ended.
type Record struct {
	RID       id.RID     `json:"rid"`
	Label     string     `json:"label,omitempty"` // the client's own rid
	API       string     `json:"api"`
	Model     string     `json:"model,omitempty"`
	Stream    bool       `json:"stream"`
	Received  time.Time  `json:"received"`
	Deadline  float64    `json:"deadline_s"`
	Attempts  []*Attempt `json:"attempts"`
	FirstByte float64    `json:"first_byte_s,omitempty"` // from Received to decode's first event
	Events    int        `json:"events,omitempty"`       // relayed to the client
	Tokens    int        `json:"completion_tokens,omitempty"`

	Outcome string  `json:"outcome,omitempty"` // "" while live
	Code    string  `json:"code,omitempty"`
	Detail  string  `json:"detail,omitempty"`
	Who     string  `json:"who,omitempty"`
	Took    float64 `json:"took_s,omitempty"`
}

// Attempt is one pair's try at a request.
type Attempt struct {
	Room    id.Room `json:"room,string"` // a string, because int63 does not fit JavaScript's numbers
	Prefill string  `json:"prefill"`
	Decode  string  `json:"decode"`
	Sent    float64 `json:"sent_s"` // all times from Received
	Head    float64 `json:"decode_head_s,omitempty"`
	Exports float64 `json:"prefill_done_s,omitempty"`
	Ended   float64 `json:"ended_s,omitempty"`
	Code    string  `json:"code,omitempty"`
	Detail  string  `json:"detail,omitempty"`
	Who     string  `json:"who,omitempty"`
	Charged string  `json:"charged,omitempty"` // the worker whose breaker heard of a failure
}

// live is a record in the making. Its methods are safe for concurrent use.
type live struct {
	book   *book
	cancel context.CancelCauseFunc // ends the request
	over   chan struct{}           // closes when it has ended
	mu     sync.Mutex
	r      Record
	done   bool
}

func (l *live) since() float64 { return time.Since(l.r.Received).Seconds() }

// update changes the record unless it has ended.
func (l *live) update(fn func(r *Record, now float64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		fn(&l.r, l.since())
	}
}

func (l *live) snapshot() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.r
	r.Attempts = make([]*Attempt, len(l.r.Attempts))
	for i, a := range l.r.Attempts {
		c := *a
		r.Attempts[i] = &c
	}
	return r
}

// Finalize ends the record. The first call wins; it returns whether this was it.
func (l *live) Finalize(cause *room.Cause, who string) bool {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return false
	}
	l.done = true
	l.r.Outcome, l.r.Code, l.r.Detail, l.r.Who = cause.Outcome().String(), api.Label(cause.Code), cause.Detail, who
	l.r.Took = l.since()
	l.mu.Unlock()
	l.book.ended(l)
	close(l.over)
	return true
}

// book holds the live records and a ring of the ended ones.
type book struct {
	mu    sync.Mutex
	live  map[id.RID]*live
	ring  []Record
	next  int
	count uint64 // ended since start
	on    func(Record)
}

func newBook(size int, onEnd func(Record)) *book {
	return &book{live: map[id.RID]*live{}, ring: make([]Record, 0, size), on: onEnd}
}

// open begins a record, or refuses when too many are live. cancel ends the request
// with its cause.
func (b *book) open(r Record, most int, cancel context.CancelCauseFunc) (*live, *room.Cause) {
	l := &live{book: b, r: r, cancel: cancel, over: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.live) >= most {
		return nil, room.Because(room.QueueFull, "%d requests are in flight, the limit is %d", len(b.live), most)
	}
	b.live[r.RID] = l
	return l, nil
}

func (b *book) ended(l *live) {
	r := l.snapshot()
	b.mu.Lock()
	delete(b.live, r.RID)
	if len(b.ring) < cap(b.ring) {
		b.ring = append(b.ring, r)
	} else {
		b.ring[b.next] = r
		b.next = (b.next + 1) % len(b.ring)
	}
	b.count++
	b.mu.Unlock()
	b.on(r)
}

// list returns the live records, oldest first, and the ended ones, newest first.
func (b *book) list(most int) (running, ended []Record) {
	b.mu.Lock()
	running, ended = []Record{}, []Record{} // lists in JSON, also when empty
	lives := make([]*live, 0, len(b.live))
	for _, l := range b.live {
		lives = append(lives, l)
	}
	for i := 0; i < len(b.ring) && i < most; i++ {
		ended = append(ended, b.ring[(b.next+2*len(b.ring)-1-i)%len(b.ring)])
	}
	b.mu.Unlock()
	for _, l := range lives {
		running = append(running, l.snapshot())
	}
	slices.SortFunc(running, func(x, y Record) int { return cmp.Compare(x.Received.UnixNano(), y.Received.UnixNano()) })
	return running[:min(len(running), most)], ended
}

// is says whether a record is the one that key names: by our rid, plain or as an
// answer's id has it, by a room, or by the client's own rid.
func (r *Record) is(key string) bool {
	if key == "" {
		return false
	}
	if key == r.Label || string(r.RID) == bareRID(key) {
		return true
	}
	return slices.ContainsFunc(r.Attempts, func(a *Attempt) bool { return a.Room.String() == key })
}

// bareRID takes off what answers' ids have before the rid.
func bareRID(key string) string {
	for _, prefix := range []string{"chatcmpl-", "cmpl-"} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return rest
		}
	}
	return key
}

// find returns the records that key names, live ones first: several if a client
// used its rid more than once.
func (b *book) find(key string) (found []Record) {
	running, ended := b.list(1 << 30)
	for _, r := range append(running, ended...) {
		if r.is(key) {
			found = append(found, r)
		}
	}
	return found
}

// matching returns the live records that want accepts.
func (b *book) matching(want func(*Record) bool) (found []*live) {
	b.mu.Lock()
	all := make([]*live, 0, len(b.live))
	for _, l := range b.live {
		all = append(all, l)
	}
	b.mu.Unlock()
	for _, l := range all {
		l.mu.Lock()
		if !l.done && want(&l.r) {
			found = append(found, l)
		}
		l.mu.Unlock()
	}
	return found
}
