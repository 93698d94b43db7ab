package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/supervise"
)

const (
	// workerHost is where workers started by tandem up listen: they have no
	// authentication, and nobody but the router and each other needs them.
	workerHost = "127.0.0.1"
	// upDrain is how long the children let requests finish when they are stopped; it
	// leaves them time to abort the rest before supervise kills them.
	upDrain = "5s"
)

// Ports: the router has the first, each prefill the next two, each decode one.
func (o *upOptions) prefillPort(i int) int { return o.port + 1 + 2*i }
func (o *upOptions) decodePort(i int) int  { return o.port + 1 + 2*o.prefill + i }
func (o *upOptions) lastPort() int         { return o.decodePort(o.decode - 1) }

// plan returns the children: the workers, then the router.
func (o *upOptions) plan(exe string, m upModel) []supervise.Spec {
	var children []supervise.Spec
	router := []string{exe, "router", "--host", o.host, "--port", strconv.Itoa(o.port), "--drain-timeout", upDrain}
	for i := range o.prefill {
		port, bootstrap := o.prefillPort(i), strconv.Itoa(o.prefillPort(i)+1)
		children = append(children, o.worker(exe, m, "prefill", i, port, "--bootstrap-port", bootstrap))
		router = append(router, "--prefill", url(workerHost, port)+","+bootstrap)
	}
	for i := range o.decode {
		port := o.decodePort(i)
		children = append(children, o.worker(exe, m, "decode", i, port))
		router = append(router, "--decode", url(workerHost, port))
	}
	return append(children, supervise.Spec{Name: "router", Args: router, Health: o.routerURL() + "/health"})
}

func (o *upOptions) worker(exe string, m upModel, role string, i, port int, more ...string) supervise.Spec {
	args := append([]string{exe, role, "--host", workerHost, "--port", strconv.Itoa(port)}, more...)
	args = append(args, "--engine", o.engine, "--model-name", m.name)
	if m.path != "" {
		args = append(args, "--model", m.path, "--llama-lib", m.libDir)
	}
	args = append(args, "--threads", strconv.Itoa(o.threads), "--drain-timeout", upDrain)
	args = append(args, o.pass...)
	args = append(args, o.extra...) // last: what the user says wins
	return supervise.Spec{Name: fmt.Sprintf("%s-%d", role, i), Args: args, Health: url(workerHost, port) + "/health"}
}

func url(host string, port int) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// routerURL is the router's address as seen from this machine.
func (o *upOptions) routerURL() string {
	host := o.host
	switch ip := net.ParseIP(host); {
	case host == "":
		host = workerHost
	case ip != nil && ip.IsUnspecified() && ip.To4() == nil:
		host = "::1"
	case ip != nil && ip.IsUnspecified():
		host = workerHost
	}
	return url(host, o.port)
}

// portsFree returns an error that names every port that is taken. A port may still be
// taken between this and the child's start; then the child's own error says so.
func (o *upOptions) portsFree() error {
	type port struct {
		host, owner string
		number      int
	}
	ports := []port{{o.host, "router", o.port}}
	for i := range o.prefill {
		owner := fmt.Sprintf("prefill-%d", i)
		ports = append(ports, port{workerHost, owner, o.prefillPort(i)}, port{workerHost, owner + "'s bootstrap", o.prefillPort(i) + 1})
	}
	for i := range o.decode {
		ports = append(ports, port{workerHost, fmt.Sprintf("decode-%d", i), o.decodePort(i)})
	}
	var taken []error
	for _, p := range ports {
		ln, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(p.number)))
		if err != nil {
			taken = append(taken, fmt.Errorf("port %d, for %s, cannot be used: %w", p.number, p.owner, err))
			continue
		}
		ln.Close()
	}
	if len(taken) == 0 {
		return nil
	}
	return fmt.Errorf("%w\nEnd what listens there (another tandem up?), or choose other ports: --port N takes N to N+%d", errors.Join(taken...), o.lastPort()-o.port)
}

// welcome is printed when everything is ready.
func (o *upOptions) welcome(m upModel, took time.Duration) string {
	path, body := "/v1/completions", fmt.Sprintf(`{"model": %q, "prompt": "The capital of France is", "max_tokens": 32}`, m.name)
	if m.chat {
		path, body = "/v1/chat/completions", fmt.Sprintf(`{"model": %q, "messages": [{"role": "user", "content": "Hello! Who are you?"}], "max_tokens": 64}`, m.name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nReady after %.1f s: %s serves %s with %d prefill and %d decode workers. Try it:\n\n", took.Seconds(), o.routerURL(), m.name, o.prefill, o.decode)
	fmt.Fprintf(&b, "  curl %s%s -H 'Content-Type: application/json' \\\n    -d %s\n\n", o.routerURL(), path, supervise.Quote([]string{body}))
	if !m.chat {
		b.WriteString("This model continues text; it has no chat template. For one that chats: --model smollm2-135m\n")
	}
	b.WriteString("Ctrl-C ends everything.\n\n")
	return b.String()
}
