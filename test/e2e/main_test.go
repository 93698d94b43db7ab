//go:build unix

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// executable is what is under test.
var executable string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if config := os.Getenv(agentEnv); config != "" {
		return beAgent(config)
	}
	dir, err := os.MkdirTemp("", "tandem-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if strings.Contains(os.Getenv("TANDEM_E2E_BUILD"), "-race") { // its slowness is no subject here
		freed *= 10
		thousand = 200
	}
	if executable, err = build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	// A child that nobody waited for is one that a test lost.
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		fmt.Fprintf(os.Stderr, "a child process is left: wait4 says %d, %v\n", pid, err)
		code = 1
	}
	if path := os.Getenv("TANDEM_GAUNTLET_TABLE"); path != "" {
		var text strings.Builder
		printTable(&text)
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// build makes the executable in dir.
func build(dir string) (string, error) {
	if path := os.Getenv("TANDEM_E2E_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(dir, "tandem")
	args := append([]string{"build", "-o", path}, strings.Fields(os.Getenv("TANDEM_E2E_BUILD"))...)
	out, err := exec.Command("go", append(args, "github.com/tandem-llm/tandem/cmd/tandem")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}
