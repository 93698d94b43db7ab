package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/modelstore"
)

const (
	// installTimeout covers a package manager on a slow network.
	installTimeout = 5 * time.Minute
	suiteTimeout   = 2 * time.Minute
	startTimeout   = time.Minute
)

// require fails instead of skipping when a client cannot be installed.
const requireEnv = "TANDEM_REQUIRE_CLIENTS"

func TestTheOfficialClientsWorkThroughTheRouter(t *testing.T) {
	if testing.Short() {
		t.Skip("installs clients: not in short mode")
	}
	url := startUp(t, "--engine", "sim")
	t.Run("python", func(t *testing.T) { python(t, "suite.py", url) })
	t.Run("javascript", func(t *testing.T) { javascript(t, "suite.mjs", url) })
	t.Run("go", func(t *testing.T) { golang(t, url) })
}

func TestTheOfficialClientsCallToolsThroughTheRouter(t *testing.T) {
	if testing.Short() {
		t.Skip("installs clients: not in short mode")
	}
	testmodel.Library(t)
	url := startUp(t, "--model", chatModel(t))
	t.Run("python", func(t *testing.T) { python(t, "tools.py", url) })
	t.Run("javascript", func(t *testing.T) { javascript(t, "tools.mjs", url) })
	t.Run("go", func(t *testing.T) { golang(t, url, "tools") })
}

// chatModel returns a small model that was trained to chat, if this machine has it,
// else one with random weights: a grammar makes calls even of its answers.
func chatModel(t *testing.T) string {
	t.Helper()
	if k, ok := modelstore.Lookup("smollm2-135m"); ok {
		if path, cached, err := modelstore.Path(k, modelstore.Options{}); err == nil && cached {
			return path
		}
	}
	path, err := testmodel.Path(testmodel.LlamaGQA)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startUp builds tandem and runs `tandem up`.
func startUp(t *testing.T, args ...string) (url string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "tandem")
	run(t, installTimeout, "../..", "go", "build", "-o", bin, "./cmd/tandem")
	port := freePorts(t)
	var log bytes.Buffer
	cmd := exec.Command(bin, append([]string{"up", "--port", fmt.Sprint(port)}, args...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("tandem up:\n%s", log.String())
		}
	})
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get(url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return url
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("tandem up is not ready after %v", startTimeout)
		case <-tick.C:
		}
	}
}

// freePorts returns a port that is free together with the four after it.
func freePorts(t *testing.T) int {
	t.Helper()
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		first := l.Addr().(*net.TCPAddr).Port
		l.Close()
		free := true
		for p := first + 1; p < first+5 && free; p++ {
			next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				next.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatal("no five free ports in a row")
	return 0
}

// cached returns a directory that install has filled once for these contents.
func cached(t *testing.T, name, manifest string, install func(dir string) error) string {
	t.Helper()
	spec, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(spec)
	dir := filepath.Join(base, "tandem", "interop", name+"-"+hex.EncodeToString(sum[:6]))
	done := filepath.Join(dir, ".installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := install(dir); err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatal(err)
		}
		t.Skipf("%s's client cannot be installed here: %v", name, err)
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func python(t *testing.T, script, url string) {
	dir := cached(t, "python", "clients/py/requirements.txt", func(dir string) error {
		if err := try(installTimeout, ".", "python3", "-m", "venv", dir); err != nil {
			return err
		}
		return try(installTimeout, ".", filepath.Join(dir, "bin", "pip"), "install", "-q", "--disable-pip-version-check", "-r", "clients/py/requirements.txt")
	})
	suite(t, ".", filepath.Join(dir, "bin", "python"), "clients/py/"+script, url)
}

func javascript(t *testing.T, script, url string) {
	dir := cached(t, "javascript", "clients/js/package.json", func(dir string) error {
		spec, err := os.ReadFile("clients/js/package.json")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "package.json"), spec, 0o644); err != nil {
			return err
		}
		return try(installTimeout, dir, "npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock")
	})
	// Modules are looked up beside the script.
	code, err := os.ReadFile("clients/js/" + script)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, script), code, 0o644); err != nil {
		t.Fatal(err)
	}
	suite(t, dir, "node", script, url)
}

func golang(t *testing.T, args ...string) {
	if err := try(installTimeout, "clients/go", "go", "mod", "download"); err != nil {
		t.Skipf("the Go client cannot be fetched here: %v", err)
	}
	bin := filepath.Join(t.TempDir(), "suite")
	run(t, installTimeout, "clients/go", "go", "build", "-o", bin, ".")
	suite(t, "clients/go", bin, args...)
}

// suite runs a client's suite; its last line says how many checks passed.
func suite(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	out := run(t, suiteTimeout, dir, name, args...)
	if !strings.Contains(out, " passed") {
		t.Fatalf("the suite did not say that it passed:\n%s", out)
	}
	t.Log(strings.TrimSpace(out))
}

func run(t *testing.T, timeout time.Duration, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func try(timeout time.Duration, dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
