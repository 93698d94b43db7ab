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
	router = append(router, o.logs()...)
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
	args = append(args, o.logs()...)
	args = append(args, o.pass...)
	args = append(args, o.extra...) // last: what the user says wins
	return supervise.Spec{Name: fmt.Sprintf("%s-%d", role, i), Args: args, Health: url(workerHost, port) + "/health"}
}

// logs keeps the children's ordinary lines from burying ours.
func (o *upOptions) logs() []string {
	if o.verbose {
		return nil
	}
	return []string{"--log-level", "warn"}
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
	return fmt.Errorf("%w\nEnd what listens there (another tandem up?), or choose other ports: --port N takes N to N+%d (make up PORT=N)", errors.Join(taken...), o.lastPort()-o.port)
}

// welcome is printed when everything is ready. The question is one that a base model
// answers too, when it stands in a dialogue, and at temperature 0 always the same way.
func (o *upOptions) welcome(m upModel, took time.Duration) string {
	question := "What is the capital of France?"
	if m.chat {
		question = "What is 2+2?" // the smallest chat models know hardly more
	}
	body := fmt.Sprintf(`{"model": %q, "messages": [{"role": "user", "content": %q}], "temperature": 0, "max_tokens": 32}`, m.name, question)
	var b strings.Builder
	fmt.Fprintf(&b, "\nReady after %.1f s: %s serves %s with %s and %s. Try it:\n\n", took.Seconds(), o.routerURL(), m.name, count(o.prefill, "prefill worker"), count(o.decode, "decode worker"))
	fmt.Fprintf(&b, "  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d %s\n\n", o.routerURL(), supervise.Quote([]string{body}))
	switch {
	case m.path == "":
		b.WriteString("The simulator answers with made-up words, like w0265: it shows that everything works, not that anything is known.\n")
	case !m.chat:
		b.WriteString("This model continues text; it has no chat template, so chats are written out as a dialogue. For one that was trained to chat: --model smollm2-135m\n")
	}
	if !o.verbose {
		b.WriteString("Requests that end well are not shown; --verbose shows every line. ")
	}
	b.WriteString("Ctrl-C ends everything.\n\n")
	return b.String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
