package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// envRun makes the test binary be tandem itself, and so, through `tandem up`, its
// own children too.
const envRun = "TANDEM_TEST_RUN"

const soon = 60 * time.Second // patience with what takes a second on an idle machine

func TestMain(m *testing.M) {
	if os.Getenv(envRun) == "1" {
		os.Exit(run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// process is a running tandem.
type process struct {
	*exec.Cmd
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
	exited  chan struct{}
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...), changed: make(chan struct{}), exited: make(chan struct{})}
	p.Env = append(os.Environ(), envRun+"=1")
	p.Stdout, p.Stderr = p, p
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-p.exited
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
	return p.text.Write(b)
}

func (p *process) printed() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String(), p.changed
}

// prints waits for text that the pattern finds, and returns its first group.
func (p *process) prints(t *testing.T, pattern string) string {
	t.Helper()
	re, late := regexp.MustCompile(pattern), time.After(soon)
	for {
		text, changed := p.printed()
		if m := re.FindStringSubmatch(text); m != nil {
			return m[len(m)-1]
		}
		select {
		case <-changed:
		case <-p.exited:
			if text, _ := p.printed(); !re.MatchString(text) {
				t.Fatalf("it ended (%v) and has not printed %q but:\n%s", p.ProcessState, pattern, text)
			}
		case <-late:
			t.Fatalf("it does not print %q but:\n%s", pattern, text)
		}
	}
}

// ends waits for the end and returns the exit status.
func (p *process) ends(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(soon):
		text, _ := p.printed()
		t.Fatalf("it does not end; it printed:\n%s", text)
		return 0
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// freePorts returns the first of n ports in a row that are free now.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held := []net.Listener{first}
		port := first.Addr().(*net.TCPAddr).Port
		for i := 1; i < n; i++ {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
			if err != nil {
				break
			}
			held = append(held, ln)
		}
		for _, ln := range held {
			ln.Close()
		}
		if len(held) == n {
			return port
		}
	}
	t.Fatal("no free ports in a row")
	return 0
}

// pid returns the process id of a child's latest start.
func (p *process) pid(t *testing.T, child string) int {
	t.Helper()
	text, _ := p.printed()
	all := regexp.MustCompile(child+` runs as pid (\d+)`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("%s has no pid in:\n%s", child, text)
	}
	n, _ := strconv.Atoi(all[len(all)-1][1])
	return n
}

// asks sends one prompt through the router and returns the status and the answer.
func asks(t *testing.T, port int) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: soon, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/completions", port), "application/json", strings.NewReader(`{"prompt": "hello", "max_tokens": 5}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func upSim(t *testing.T) (*process, int) {
	t.Helper()
	port := freePorts(t, 4)
	p := start(t, "up", "--engine", "sim", "--port", strconv.Itoa(port))
	p.prints(t, `Ready after`)
	return p, port
}

func TestUpServesBringsBackWhatIsKilledAndEndsWithOneSignal(t *testing.T) {
	p, port := upSim(t)
	if code, body := asks(t, port); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, child := range []string{"prefill-0", "decode-0", "router"} {
		if err := syscall.Kill(p.pid(t, child), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.prints(t, child+` ended after .*: signal: killed; starting it again`)
		p.prints(t, child+` is ready again`)
		// The child is ready; the router may need a health check to know.
		deadline, tick := time.After(soon), time.NewTicker(20*time.Millisecond)
		for {
			code, body := asks(t, port)
			if code == 200 {
				break
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("after the death of %s: %d %s", child, code, body)
			}
		}
		tick.Stop()
	}
	p.signal(t, syscall.SIGINT)
	if code := p.ends(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for _, child := range []string{"prefill-0", "decode-0", "router"} {
		if err := syscall.Kill(p.pid(t, child), 0); err != syscall.ESRCH {
			t.Errorf("%s is still there: %v", child, err)
		}
	}
}

func TestASecondSignalKillsAChildThatDoesNotEnd(t *testing.T) {
	p, _ := upSim(t)
	frozen := p.pid(t, "prefill-0")
	if err := syscall.Kill(frozen, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGINT)
	p.prints(t, `router ended`)
	// Signals that come too close to the first count as the first.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.Process.Signal(syscall.SIGINT)
			continue
		case <-p.exited:
		}
		break
	}
	if code := p.ends(t); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit status %d", code)
	}
	if err := syscall.Kill(frozen, 0); err != syscall.ESRCH {
		t.Errorf("the frozen child is still there: %v", err)
	}
}

func TestAMistakeBehindTheDashesIsToldOnceBeforeAnythingStarts(t *testing.T) {
	p := start(t, "up", "--engine", "sim", "--port", strconv.Itoa(freePorts(t, 4)), "--", "--bogus")
	if code := p.ends(t); code != exitUsage {
		t.Errorf("exit status %d", code)
	}
	p.prints(t, `tandem: behind --, for the prefill workers: unknown flag: --bogus. See: tandem prefill --help`)
	if text, _ := p.printed(); strings.Count(text, "--bogus") != 1 || strings.Contains(text, "runs as pid") {
		t.Error(text)
	}
}

func TestUpEndsAtOnceWhenAWorkersCommandLineIsWrong(t *testing.T) {
	p := start(t, "up", "--engine", "sim", "--port", strconv.Itoa(freePorts(t, 4)), "--", "--log-level", "loud")
	if code := p.ends(t); code != 1 {
		t.Errorf("exit status %d", code)
	}
	p.prints(t, `(prefill|decode)-0 +\| tandem: --log-level loud: use debug`)
	p.prints(t, `tandem: (prefill|decode)-0 cannot start: exit status 2, which another start does not mend`)
	if text, _ := p.printed(); strings.Contains(text, "starting it again") {
		t.Error(text)
	}
}

func TestUpShowsRequestsOnlyWhenAskedToAndSaysWhatItWaitsFor(t *testing.T) {
	p, port := upSim(t)
	if code, body := asks(t, port); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	p.signal(t, syscall.SIGINT)
	p.prints(t, `waiting up to 10s for prefill-0 \(pid \d+\), .*; a second Ctrl-C ends them at once`)
	if code := p.ends(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if text, _ := p.printed(); strings.Contains(text, "request ended") {
		t.Errorf("it shows requests that ended well:\n%s", text)
	}
}

func TestAnErrorIsOneLineOnStderrAndNoPageOfFlags(t *testing.T) {
	for want, x := range map[string]struct {
		args []string
		code int
	}{
		`unknown command "serv" for "tandem"; did you mean serve? See: tandem --help`: {[]string{"serv"}, exitUsage},
		`unknown command "foo" for "tandem". See: tandem --help`:                      {[]string{"foo"}, exitUsage},
		`unknown flag: --modle; did you mean --model? See: tandem up --help`:          {[]string{"up", "--modle", "x"}, exitUsage},
		`unexpected argument "sim"; flags for the workers go behin`:                   {[]string{"up", "sim"}, exitUsage},
		`unknown model "nope"`: {[]string{"up", "--model", "nope"}, 1},
		`tandem: --prefill 0`:  {[]string{"up", "--prefill", "0"}, exitUsage},
		`give at least one`:    {[]string{"router"}, exitUsage},
	} {
		p := start(t, x.args...)
		if code := p.ends(t); code != x.code {
			t.Errorf("%v: exit status %d", x.args, code)
		}
		if text, _ := p.printed(); !strings.Contains(text, want) || strings.Contains(text, "Usage:") || !strings.HasPrefix(text, "tandem: ") {
			t.Errorf("%v prints:\n%s", x.args, text)
		}
	}
	p := start(t, "version")
	p.prints(t, `^tandem .*llama.cpp`)
}
