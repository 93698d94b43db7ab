package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Handler that writes down what it hears and checks its order.
type recorder struct {
	mu       sync.Mutex
	space    func(p0, p1 int32, size int) []byte // nil: always
	onToken  func(engine.Token, int32)
	onExport func(p0, p1 int32, b []byte)
	tokens   []engine.Token
	last     int32
	chunks   []blob
	pending  []byte
	imported [][2]int32
	errs     []error
	wrong    []string
	done     chan engine.Result
	ended    bool
}

type blob struct {
	p0, p1 int32
	b      []byte
}

func newRecorder() *recorder { return &recorder{done: make(chan engine.Result, 1)} }

func (r *recorder) complain(format string, a ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, a...))
}

func (r *recorder) hear(what string) func() {
	r.mu.Lock()
	if r.ended {
		r.complain("%s after Done", what)
	}
	return r.mu.Unlock
}

func (r *recorder) Space(p0, p1 int32, size int) []byte {
	defer r.hear("Space")()
	if r.pending != nil {
		r.complain("Space before Exported")
	}
	if r.space != nil {
		r.pending = r.space(p0, p1, size)
	} else {
		r.pending = make([]byte, size)
	}
	return r.pending
}

func (r *recorder) Exported(p0, p1 int32, n int, err error) {
	defer r.hear("Exported")()
	b := r.pending
	r.pending = nil
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	r.chunks = append(r.chunks, blob{p0, p1, b[:n]})
	if r.onExport != nil {
		r.onExport(p0, p1, b[:n])
	}
}

func (r *recorder) Imported(p0, p1 int32, err error) {
	defer r.hear("Imported")()
	r.imported = append(r.imported, [2]int32{p0, p1})
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *recorder) Token(t engine.Token, pos int32, _ *engine.Logprobs) {
	func() {
		defer r.hear("Token")()
		if len(r.tokens) > 0 && pos != r.last+1 {
			r.complain("position %d after %d", pos, r.last)
		}
		r.last = pos
		r.tokens = append(r.tokens, t)
	}()
	if r.onToken != nil {
		r.onToken(t, pos)
	}
}

func (r *recorder) Done(res engine.Result) {
	defer r.hear("Done")()
	r.ended = true
	r.done <- res
}

// wait returns the result and fails the test if the handler heard anything out
// of order.
func (r *recorder) wait(t *testing.T) engine.Result {
	t.Helper()
	res := <-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.wrong {
		t.Error(w)
	}
	return res
}

// start runs a loop over a simulator until the test's end.
func start(t *testing.T, sc sim.Config, c engine.Config) (*engine.Loop, *sim.Backend) {
	t.Helper()
	b, err := sim.New(sc)
	if err != nil {
		t.Fatal(err)
	}
	c.Backend = b
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	l := engine.New(c)
	stop := run(t, l)
	t.Cleanup(func() {
		stop()
		if held, _ := l.Cells(); held != 0 || b.Used() != 0 {
			t.Errorf("%d cells held, %d used after Run", held, b.Used())
		}
		if load := l.Load(); load != (engine.Load{}) {
			t.Errorf("load after Run: %+v", load)
		}
	})
	return l, b
}

// run runs a loop until stop is called, which waits for it.
func run(t interface{ Errorf(string, ...any) }, l *engine.Loop) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func prompt(n int, salt engine.Token) []engine.Token {
	out := make([]engine.Token, n)
	for i := range out {
		out[i] = 300 + (engine.Token(i)*7+salt*31)%3000
	}
	return out
}

func equal(t *testing.T, what string, got, want []engine.Token) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d tokens, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: token %d is %d, want %d", what, i, got[i], want[i])
		}
	}
}

func admit(t *testing.T, l *engine.Loop, r *engine.Request, h engine.Handler) *engine.Seq {
	t.Helper()
	s, err := l.Admit(r, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
