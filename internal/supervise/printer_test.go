package supervise

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/svc"
)

func TestLinesAreWholeAndBehindTheirNames(t *testing.T) {
	g := svc.New(context.Background(), "test", nil)
	var out bytes.Buffer
	p := newPrinter(g, &out, 9)
	a, b := p.named("router", 0), p.named("prefill-0", 36)
	fmt.Fprint(a, "one\ntw")
	fmt.Fprint(b, "three\r\n\n")
	fmt.Fprint(a, "o\n10 %\r20 %\r")
	fmt.Fprint(a, "\nno end")
	a.end()
	b.end()
	p.close()
	g.Wait()
	want := "router    | one\n" +
		"\x1b[36mprefill-0\x1b[0m | three\n" +
		"\x1b[36mprefill-0\x1b[0m | \n" +
		"router    | two\n" +
		"router    | 20 %\n" +
		"router    | no end\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}

func TestALineWithoutEndDoesNotGrowWithoutEnd(t *testing.T) {
	var lines []string
	w := &lineWriter{say: func(s string) { lines = append(lines, s) }}
	for range 10 {
		w.Write(bytes.Repeat([]byte("x"), maxLine/4+1))
	}
	w.end()
	if len(lines) != 3 || len(lines[0]) != maxLine+1 || len(strings.Join(lines, ""))-3 != 10*(maxLine/4+1) {
		t.Errorf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
}

// stopped is a terminal that takes nothing until it is let go.
type stopped struct {
	entered chan struct{} // gets a value when a line is offered
	letGo   chan struct{}
	took    bytes.Buffer
}

func (s *stopped) Write(b []byte) (int, error) {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.letGo
	return s.took.Write(b)
}

// A worker's log call must not wait for somebody who pressed Ctrl-S.
func TestAStoppedTerminalCostsLinesAndHoldsNobodyUp(t *testing.T) {
	g := svc.New(context.Background(), "test", nil)
	out := &stopped{entered: make(chan struct{}, 1), letGo: make(chan struct{})}
	p := newPrinter(g, out, 1)
	w := p.named("a", 0)
	fmt.Fprintln(w, "first")
	<-out.entered
	began := time.Now()
	for range queuedLines + 7 {
		fmt.Fprintln(w, "more")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	close(out.letGo)
	p.close()
	g.Wait()
	if got := out.took.String(); strings.Count(got, "more") != queuedLines || !strings.Contains(got, "(7 lines were dropped") {
		t.Errorf("%d lines came", strings.Count(got, "more"))
	}
}
