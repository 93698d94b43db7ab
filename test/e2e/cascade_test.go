//go:build unix

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cascade runs the demonstration of bench/cascade against a fleet, and returns its
// report and exit status. At a line of the report that holds at, do is called.
func (f *fleet) cascade(at string, do func(), args ...string) (report string, status int) {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "cascade")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/tandem-llm/tandem/bench/cascade").CombinedOutput(); err != nil {
		f.t.Fatalf("go build: %v\n%s", err, out)
	}
	p := &process{name: "cascade", args: append([]string{"--url", f.router.url}, args...), program: path}
	p.spawn(f.t)
	if at != "" {
		p.awaitLine(f.t, at, patience)
		do()
	}
	status = p.await(f.t, patience)
	return p.log.all(), status
}

func TestTheCascadeDemonstrationSaysThatTheSystemSurvived(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	report, status := f.cascade("", nil, "--rounds", "2")
	if status != 0 || !strings.Contains(report, "survived: 2 times 60 streams") {
		t.Fatalf("status %d\n%s", status, report)
	}
	f.alive()
}

func TestTheCascadeDemonstrationSaysThatSomethingIsWrong(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	report, status := f.cascade("round 1", func() { f.decode.kill(t) }, "--rounds", "2")
	if status != 1 || strings.Contains(report, " survived:") {
		t.Fatalf("a decode was killed, and the status is %d\n%s", status, report)
	}
}
