package fleet

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Tandem says how Tandem's systems of a fleet compute.
type Tandem struct {
	Path    string // the executable
	Model   string // name, path, or "sim"
	Slots   int    // requests at once
	Context int    // KV cells of all of them
}

// drain is short: a benchmark that stops waits for nobody's request.
var drain = []string{"--drain-timeout", "1s"}

func (t Tandem) args(role string, port, threads int) []string {
	a := []string{role, "--port", strconv.Itoa(port), "--threads", strconv.Itoa(threads), "--slots", strconv.Itoa(t.Slots), "--context", strconv.Itoa(t.Context)}
	if t.Model == "sim" {
		a = append(a, "--engine", "sim")
	} else {
		a = append(a, "--model", t.Model)
	}
	return append(a, drain...)
}

// Serve starts tandem serve and returns its URL.
func (f *Fleet) Serve(ctx context.Context, t Tandem, threads int, cpus []int) (string, error) {
	p, err := ports(1)
	if err != nil {
		return "", err
	}
	if _, err := f.launch(ctx, cpus, t.Path, t.args("serve", p[0], threads)...); err != nil {
		return "", fmt.Errorf("%w (build it with make build)", err)
	}
	f.wait = append(f.wait, at(p[0]))
	return at(p[0]), nil
}

// Pair is prefill and decode behind a router, each by its URL.
type Pair struct{ Router, Prefill, Decode string }

// Pair starts prefill and decode with so many threads each, and a router. The
// router may use the CPUs of both.
func (f *Fleet) Pair(ctx context.Context, t Tandem, threads int, prefill, decode []int) (Pair, error) {
	p, err := ports(4)
	if err != nil {
		return Pair{}, err
	}
	out := Pair{Router: at(p[0]), Prefill: at(p[1]), Decode: at(p[2])}
	boot := strconv.Itoa(p[3])
	var both []int
	if prefill != nil && decode != nil {
		both = append(append(both, prefill...), decode...)
	}
	for _, x := range []struct {
		cpus []int
		args []string
	}{
		{prefill, append(t.args("prefill", p[1], threads), "--bootstrap-port", boot)},
		{decode, t.args("decode", p[2], threads)},
		{both, append([]string{"router", "--port", strconv.Itoa(p[0]), "--prefill", out.Prefill + "," + boot, "--decode", out.Decode}, drain...)},
	} {
		if _, err := f.launch(ctx, x.cpus, t.Path, x.args...); err != nil {
			return out, fmt.Errorf("%w (build it with make build)", err)
		}
	}
	f.wait = append(f.wait, out.Router)
	return out, nil
}

// ModelFile returns the file of a model, which tandem fetches if it must.
func ModelFile(ctx context.Context, tandem, model string) (string, error) {
	if strings.HasSuffix(model, ".gguf") {
		return model, nil
	}
	out, err := exec.CommandContext(ctx, tandem, "model", "pull", model).Output()
	if err != nil {
		return "", fmt.Errorf("%s model pull %s: %w", tandem, model, err)
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 || !filepath.IsAbs(lines[len(lines)-1]) {
		return "", fmt.Errorf("%s model pull %s printed no path: %q", tandem, model, out)
	}
	return lines[len(lines)-1], nil
}

func at(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }
