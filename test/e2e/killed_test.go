//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/router"
)

// agentEnv tells the test's own executable to be an agent: a process with many
// clients, which is then killed as a whole.
const agentEnv = "TANDEM_E2E_AGENT"

// agentSpec is what an agent does.
type agentSpec struct {
	Addr    string // of a router
	Name    string // of its requests
	Clients int
	First   int // number of its first prompt
	Prompt  int // tokens
	Tokens  int // asked for
	Limit   time.Duration
	Halves  int  // every so many clients send half a body; 0: none does
	Deaf    bool // nobody reads
}

// half says that a client never sends the end of its body.
func (s agentSpec) half(i int) bool { return s.Halves > 0 && i%s.Halves == s.Halves-1 }

// halves is how many do.
func (s agentSpec) halves() int {
	if s.Halves == 0 {
		return 0
	}
	return s.Clients / s.Halves
}

// beAgent is the life of an agent: it opens its clients, says so, and waits for the
// end, which is the kernel's to carry out. Of its clients every second one is set to
// leave by RST; the others' end is a FIN, as they have read what came.
func beAgent(config string) int {
	var s agentSpec
	if err := json.Unmarshal([]byte(config), &s); err != nil {
		fmt.Println(err)
		return 1
	}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 32) // connections being made at a time
	failed := make(chan error, s.Clients)
	open := make([]net.Conn, s.Clients) // kept: the collector closes what nobody has
	for i := range s.Clients {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			var err error
			if open[i], err = s.open(i); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		fmt.Println(err)
		return 1
	default:
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test, should it forget us
	runtime.KeepAlive(open)
	return 0
}

func (s agentSpec) open(i int) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", s.Addr, 20*time.Second)
	if err != nil {
		return nil, err
	}
	if i%2 == 0 {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	body := question{prompt: (simEngine{}).prompt(s.Prompt, s.First+i), tokens: s.Tokens, label: fmt.Sprintf("%s-%d", s.Name, i)}.body()
	head := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s: %d\r\nContent-Length: %d\r\n\r\n",
		router.TimeoutHeader, s.Limit.Milliseconds(), len(body))
	if s.half(i) {
		body = body[:len(body)/2]
	}
	if _, err := c.Write(append([]byte(head), body...)); err != nil {
		return nil, err
	}
	if !s.Deaf && i%2 > 0 {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	return c, nil
}

// agent is a running one.
type agent struct {
	agentSpec
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

// startAgents starts agents and waits until all their clients are open.
func startAgents(t *testing.T, specs ...agentSpec) (agents []*agent) {
	t.Helper()
	type said struct{ line string }
	lines := make(chan said, len(specs))
	for _, s := range specs {
		config, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), agentEnv+"="+string(config))
		cmd.SysProcAttr = attributes()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		a := &agent{agentSpec: s, cmd: cmd, stdin: in, ended: make(chan struct{})}
		go func() {
			line, _ := bufio.NewReader(out).ReadString('\n')
			lines <- said{line}
			_ = cmd.Wait()
			close(a.ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGCONT)
			_ = cmd.Process.Kill()
			<-a.ended
		})
		agents = append(agents, a)
	}
	timer := time.NewTimer(2 * time.Minute)
	defer timer.Stop()
	for range specs {
		select {
		case s := <-lines:
			if s.line != "open\n" {
				t.Fatalf("an agent said %q", s.line)
			}
		case <-timer.C:
			t.Fatal("the agents' clients are not open after two minutes")
		}
	}
	return agents
}

// killAll kills agents at once and says how long the instant was, from the first
// signal until the kernel has closed the last connection.
func killAll(t *testing.T, agents []*agent) time.Duration {
	t.Helper()
	began := time.Now()
	for _, a := range agents {
		if err := a.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range agents {
		<-a.ended
	}
	return time.Since(began)
}
