package supervise

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is its own fake child: with envRole set it plays one instead of
// running tests. A fake calls home over TCP, so that a test sees it come (a
// connection), tells it what to do (a line), and sees it go (the connection ends).
const (
	envRole = "TANDEM_TEST_ROLE"
	envHome = "TANDEM_TEST_HOME"
	envName = "TANDEM_TEST_NAME"

	patience = 20 * time.Second // of a test for something that happens at once
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "":
		goleak.VerifyTestMain(m)
	case "broken":
		fmt.Fprintln(os.Stderr, "no such model: give the path of a .gguf file")
		os.Exit(7)
	case "child":
		playChild()
	case "parent":
		playParent()
	}
}

func playChild() {
	conn, err := net.Dial("tcp", os.Getenv(envHome))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	fmt.Fprintln(conn, os.Getenv(envName), os.Getpid())
	in := bufio.NewScanner(conn)
	for in.Scan() {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "say":
			fmt.Println(rest)
		case "deaf":
			signal.Ignore(syscall.SIGTERM)
			fmt.Fprintln(conn, "deaf")
		case "exit":
			code, _ := strconv.Atoi(rest)
			os.Exit(code)
		}
	}
	os.Exit(8) // the test is gone
}

// playParent supervises two fakes until it is killed.
func playParent() {
	home := os.Getenv(envHome)
	Run(context.Background(), Config{Out: io.Discard, Children: []Spec{fake("a", home), fake("b", home)}, probe: never})
}

func never(context.Context, string) error { return fmt.Errorf("not yet") }

func fake(name, home string) Spec {
	return Spec{Name: name, Args: []string{os.Args[0]}, Health: name, Env: []string{envRole + "=child", envHome + "=" + home, envName + "=" + name}}
}

// world is a home for fakes, a supervisor of some of them, and what it prints.
type world struct {
	t        *testing.T
	home     net.Listener
	arrivals chan *visitor
	clock    *fakeClock
	out      *output
	cfg      Config
	cancel   context.CancelCauseFunc
	ended    chan error

	mu    sync.Mutex
	ready map[string]bool
}

// visitor is one run of a fake.
type visitor struct {
	name string
	pid  int
	conn net.Conn
	in   *bufio.Reader
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	home, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: home, arrivals: make(chan *visitor, 100), clock: newFakeClock(), out: newOutput(), ended: make(chan error, 1), ready: map[string]bool{}}
	w.cfg = Config{Out: w.out, clock: w.clock, probe: w.probe}
	for _, n := range names {
		w.cfg.Children = append(w.cfg.Children, fake(n, home.Addr().String()))
	}
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := home.Accept()
			if err != nil {
				return
			}
			v := &visitor{conn: conn, in: bufio.NewReader(conn)}
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := fmt.Fscanln(v.in, &v.name, &v.pid); err == nil {
				w.arrivals <- v
			}
		}
	}()
	t.Cleanup(func() {
		home.Close()
		<-accepting
		close(w.arrivals)
		for v := range w.arrivals {
			v.conn.Close()
		}
	})
	return w
}

func (w *world) probe(_ context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready[name] {
		return nil
	}
	return fmt.Errorf("503 loading %s", name)
}

func (w *world) setReady(ready bool, names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range names {
		w.ready[n] = ready
	}
}

// run starts the supervisor.
func (w *world) run() {
	ctx, cancel := context.WithCancelCause(context.Background())
	w.cancel = cancel
	go func() { w.ended <- Run(ctx, w.cfg) }()
	w.t.Cleanup(func() { cancel(nil) })
}

// end waits for the supervisor's own end and checks that no process is left.
func (w *world) end(visitors ...*visitor) error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		for _, v := range visitors {
			// A zombie could still be signalled.
			if err := syscall.Kill(v.pid, 0); err != syscall.ESRCH {
				w.t.Errorf("%s, pid %d, is still there: %v", v.name, v.pid, err)
			}
		}
		return err
	case <-time.After(patience):
		w.t.Fatalf("it does not end; printed so far:\n%s", w.out)
		return nil
	}
}

// next returns the next run that came home.
func (w *world) next() *visitor {
	w.t.Helper()
	select {
	case v := <-w.arrivals:
		w.t.Cleanup(func() { v.conn.Close() })
		return v
	case <-time.After(patience):
		w.t.Fatalf("nobody comes; printed so far:\n%s", w.out)
		return nil
	}
}

// both returns the runs of two children, by name.
func (w *world) both() map[string]*visitor {
	w.t.Helper()
	a, b := w.next(), w.next()
	return map[string]*visitor{a.name: a, b.name: b}
}

func (v *visitor) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(v.conn, line); err != nil {
		t.Fatal(err)
	}
}

// hears waits for a line of the child's.
func (v *visitor) hears(t *testing.T, want string) {
	t.Helper()
	if got, err := v.in.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("heard %q, %v", got, err)
	}
}

// gone waits until the child's process has ended.
func (v *visitor) gone(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, v.in); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Fatalf("%s is still there", v.name)
	}
}

// output collects what is printed and lets a test wait for some of it.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) wants(t *testing.T, part string) {
	t.Helper()
	late := time.After(patience)
	for {
		o.mu.Lock()
		found, changed := strings.Contains(o.text.String(), part), o.changed
		o.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%q is not printed, but:\n%s", part, o)
		}
	}
}

// fakeClock holds still until a test moves it. Its timers ring when told to.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Time
	asked chan timer
}

type timer struct {
	d    time.Duration
	ring func()
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Unix(1e9, 0), asked: make(chan timer, 100)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() {
	c.asked <- timer{d, f}
	return func() {}
}

// pause waits for a timer of that length, rings it, and fails if a restart was
// planned after another pause.
func (c *fakeClock) pause(t *testing.T, want time.Duration) {
	t.Helper()
	for {
		select {
		case got := <-c.asked:
			if got.d == want {
				got.ring()
				return
			}
			if got.d <= MaxPause && got.d != DefaultStopTimeout {
				t.Fatalf("the pause is %v, want %v", got.d, want)
			}
		case <-time.After(patience):
			t.Fatalf("no timer of %v is set", want)
		}
	}
}
