//go:build unix

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// patience bounds every request of a crowd: far above what any may take.
const patience = time.Minute

// crowd is many requests at once, each read to its end.
type crowd struct {
	fleet     *fleet
	questions []question
	answers   []answer
	asking    sync.WaitGroup
}

// askAll sends n questions at once; each gets a label from the crowd's name.
func (f *fleet) askAll(name string, n int, q func(i int) question) *crowd {
	f.t.Helper()
	c := &crowd{fleet: f, questions: make([]question, n), answers: make([]answer, n)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(func() {
		cancel()
		c.asking.Wait()
	})
	for i := range n {
		c.questions[i] = q(i)
		c.questions[i].label = fmt.Sprintf("%s-%d", name, i)
		c.asking.Go(func() { c.answers[i] = ask(ctx, f.router.url, c.questions[i]) })
	}
	return c
}

// long returns questions like those of a storm, with short answers.
func (f *fleet) long(tokens int) func(i int) question {
	return func(i int) question { return question{prompt: f.engine.prompt(1200, i), tokens: tokens} }
}

// verdict is what became of a crowd.
type verdict struct {
	complete, refused, cut int           // whole answers, error statuses, errors in band
	last                   time.Duration // until the last error, from a moment on
	codes                  map[string]int
}

func (v verdict) String() string {
	return fmt.Sprintf("%d complete, %d refused, %d cut, the last error after %v, codes %v", v.complete, v.refused, v.cut, v.last.Round(time.Millisecond), v.codes)
}

// judge waits for every answer and demands that each is honest: complete and
// right, or a clear error no later than within from since, plus what other programs
// took of the machine meanwhile.
func (c *crowd) judge(since time.Time, within time.Duration) verdict {
	t := c.fleet.t
	t.Helper()
	others := watchOthers(c.fleet.all())
	c.asking.Wait()
	within += others.took()
	v := verdict{codes: map[string]int{}}
	for i, a := range c.answers {
		if err := a.honest(c.fleet.known(c.questions[i])); err != nil {
			t.Errorf("%s: %v", c.questions[i].label, err)
			continue
		}
		switch {
		case a.done:
			v.complete++
			continue
		case a.inBand:
			v.cut++
		default:
			v.refused++
		}
		v.codes[fmt.Sprintf("%d %s", a.status, a.code)]++
		took := a.ended.Sub(since)
		v.last = max(v.last, took)
		if took > within {
			t.Errorf("%s: the error came after %v, at most %v are allowed: %v", c.questions[i].label, took, within, a)
		}
	}
	return v
}

// all demands that every answer is complete and right.
func (c *crowd) all(t *testing.T) {
	t.Helper()
	c.asking.Wait()
	for i, a := range c.answers {
		if err := a.honest(c.fleet.known(c.questions[i])); err != nil || !a.done {
			t.Errorf("%s: want a complete answer: %v, %v", c.questions[i].label, a, err)
		}
	}
}
