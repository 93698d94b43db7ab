package fault

import (
	"fmt"
	"sync"
	"time"
)

// Fault is what is done to a frame.
type Fault uint8

// The faults. Those that end a connection end the one the frame is on.
const (
	Drop      Fault = iota // it never arrives
	Delay                  // it, and what follows it, arrives later by Rule.Delay
	Hold                   // it, and what follows it, waits for Release or Heal
	Duplicate              // it arrives twice
	Reorder                // it arrives after the next one of its connection, or after reorderWait
	Truncate               // only its first Rule.At bytes arrive
	Flip                   // bit 0 of byte Rule.At is another one
	Hole                   // from it on nothing arrives in this direction of this plane
	Reset                  // both sides' connections are reset instead
	Cut                    // Rule.At bytes of what carries it arrive, then both sides see the end
	HalfOpen               // the receiver's connection is reset; the sender's stays open and nobody reads on
	faults
)

var faultNames = [faults]string{"drop", "delay", "hold", "duplicate", "reorder", "truncate", "flip", "hole", "reset", "cut", "half-open"}

// String returns the fault's name in tables.
func (f Fault) String() string { return faultNames[f] }

// Faults lists every fault.
func Faults() []Fault {
	all := make([]Fault, faults)
	for i := range all {
		all[i] = Fault(i)
	}
	return all
}

// reorderWait is how long a frame that is to be overtaken waits for the one that does:
// longer than a PING's interval, so that on a session there always is one.
const reorderWait = time.Second

// Rule says which frames are met, and by what.
type Rule struct {
	Point                  // Type "" is every type
	Match func(Frame) bool // nil: every frame at the point
	Skip  int              // frames that pass first
	Times int              // frames that are met then; 0: every one
	Do    Fault
	Delay time.Duration
	// At is a byte of the frame, from its end if negative. Beyond the frame it is the
	// last.
	At int
	// Then is called with every frame that is met, before the fault is done, on the
	// connection's own goroutine. It must not call Heal or Close.
	Then func(Frame)
}

// at returns the byte that At names.
func (r *Rule) at(n int) int {
	at := r.At
	if at < 0 {
		at += n
	}
	return max(0, min(at, n-1))
}

// Injection is a rule in force.
type Injection struct {
	rule Rule
	p    *Proxy

	once sync.Once
	met  chan struct{} // closed at the first hit
	free chan struct{} // closed by Release, Heal and Close
	// Under Proxy.mu.
	passed, hits int
}

// Met is closed when the rule has met its first frame.
func (i *Injection) Met() <-chan struct{} { return i.met }

// Hits returns how many frames the rule has met.
func (i *Injection) Hits() int {
	i.p.mu.Lock()
	defer i.p.mu.Unlock()
	return i.hits
}

// Release takes the rule away and lets go of what it holds back.
func (i *Injection) Release() {
	i.p.mu.Lock()
	for k, other := range i.p.rules {
		if other == i {
			i.p.rules = append(i.p.rules[:k:k], i.p.rules[k+1:]...)
			break
		}
	}
	i.p.mu.Unlock()
	i.once.Do(func() { close(i.free) })
}

// Add puts a rule in force. Of several that fit a frame the first that was added
// meets it.
func (p *Proxy) Add(r Rule) *Injection {
	i := &Injection{rule: r, p: p, met: make(chan struct{}), free: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, i)
	return i
}

// Heal takes every rule away, opens every direction, and lets go of what is held. It
// ends connections of which one side is gone, and those of the data plane that lost
// bytes: a stream of bytes does not go on without them.
func (p *Proxy) Heal() {
	p.mu.Lock()
	rules := p.rules
	p.rules = nil
	p.holes = [planes][dirs]bool{}
	var lame []*link
	for l := range p.links {
		if l.lame.Load() || l.plane == Data && l.torn.Load() {
			lame = append(lame, l)
		}
	}
	p.mu.Unlock()
	for _, i := range rules {
		i.once.Do(func() { close(i.free) })
	}
	for _, l := range lame {
		l.close()
	}
}

// judge says which rule meets a frame, nil for none, and counts.
func (p *Proxy) judge(f Frame) (met *Injection, lost bool) {
	p.mu.Lock()
	p.seen[f.Point]++
	if p.holes[f.Plane][f.Dir] {
		p.mu.Unlock()
		return nil, true
	}
	for _, i := range p.rules {
		r := &i.rule
		if r.Plane != f.Plane || r.Dir != f.Dir || r.Type != "" && r.Type != f.Type || r.Match != nil && !r.Match(f) {
			continue
		}
		if i.passed++; i.passed <= r.Skip || r.Times > 0 && i.hits >= r.Times {
			continue
		}
		if i.hits++; i.hits == 1 {
			close(i.met)
		}
		p.done[fmt.Sprintf("%v %v", r.Do, f.Point)]++
		if r.Do == Hole {
			p.holes[f.Plane][f.Dir] = true
		}
		met = i
		break
	}
	p.mu.Unlock()
	if met != nil && met.rule.Then != nil {
		met.rule.Then(f)
	}
	return met, false
}
