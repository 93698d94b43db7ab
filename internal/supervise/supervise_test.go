package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReadyIsSaidOnceWhenEveryChildIs(t *testing.T) {
	w := newWorld(t, "prefill-0", "decode-0")
	w.cfg.OnReady = func(took time.Duration) string { return fmt.Sprintf("ready after %v: try it\n", took) }
	w.run()
	kids := w.both()
	w.setReady(true, "prefill-0")
	w.clock.advance(3 * time.Second)
	kids["prefill-0"].tell(t, "say hello from prefill")
	w.out.wants(t, "prefill-0 | hello from prefill\n")
	if strings.Contains(w.out.String(), "ready after") {
		t.Error("it was ready with one of two")
	}
	w.setReady(true, "decode-0")
	w.out.wants(t, "\nready after 3s: try it\n")

	kids["decode-0"].tell(t, "exit 0")
	w.clock.pause(t, MinPause)
	w.next()
	w.out.wants(t, "up        | decode-0 is ready again\n")
	if n := strings.Count(w.out.String(), "ready after"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	w.cancel(nil)
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

func TestWhatDiesIsStartedAgainAndItsDeathIsTold(t *testing.T) {
	w := newWorld(t, "a")
	w.setReady(true, "a")
	w.cfg.OnReady = func(time.Duration) string { return "ready\n" }
	w.run()
	one := w.next()
	w.out.wants(t, "ready\n")
	one.tell(t, "exit 3")
	w.clock.pause(t, MinPause)
	w.out.wants(t, "a ended after 0s: exit status 3; starting it again in 500ms")
	two := w.next()
	if err := syscall.Kill(two.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.clock.pause(t, 2*MinPause)
	w.out.wants(t, "signal: killed; starting it again in 1s")
	three := w.next()
	w.cancel(errors.New("the user has seen enough"))
	if err := w.end(one, two, three); err != nil {
		t.Error(err)
	}
	w.out.wants(t, "stopping: the user has seen enough")
}

func TestThePauseDoublesUpToItsLimitAndIsForgottenAfterAMinuteOfLife(t *testing.T) {
	w := newWorld(t, "a")
	w.setReady(true, "a")
	w.run()
	for _, pause := range []time.Duration{500, 1000, 2000, 4000, 8000, 10000, 10000} {
		v := w.next()
		w.clock.advance(Peace - time.Second)
		v.tell(t, "exit 1")
		w.clock.pause(t, pause*time.Millisecond)
	}
	v := w.next()
	w.clock.advance(Peace)
	v.tell(t, "exit 1")
	w.clock.pause(t, MinPause)
	w.next()
	w.cancel(nil)
	w.end()
}

func TestAChildThatCannotStartEndsEverythingAndIsNamed(t *testing.T) {
	absent := Spec{Args: []string{"/nonexistent/tandem", "decode", "--model", "my model"}}
	broken := fake("", "")
	broken.Env = []string{envRole + "=broken"}
	for name, spec := range map[string]Spec{"no such model": broken, "no such file": absent} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "prefill-0")
			spec.Name, spec.Health = "decode-0", "decode-0"
			w.cfg.Children = append(w.cfg.Children, spec)
			w.run()
			healthy := w.next()
			for _, pause := range []time.Duration{500, 1000, 2000, 4000} {
				w.clock.pause(t, pause*time.Millisecond)
			}
			err := w.end(healthy)
			if err == nil || !strings.Contains(err.Error(), "decode-0 cannot start: it ended 5 times in a row") {
				t.Fatalf("%v", err)
			}
			w.out.wants(t, name)
			if name == "no such file" && !strings.Contains(err.Error(), "decode --model 'my model'") {
				t.Errorf("no command line in: %v", err)
			}
		})
	}
}

// A wrong flag was tried five times, each with the same complaint.
func TestAChildWhoseCommandLineIsWrongIsNotStartedAgain(t *testing.T) {
	w := newWorld(t, "a")
	w.run()
	v := w.next()
	v.tell(t, "exit 2")
	err := w.end(v)
	if err == nil || !strings.Contains(err.Error(), "a cannot start: exit status 2, which another start does not mend") {
		t.Errorf("%v", err)
	}
	if strings.Contains(w.out.String(), "starting it again") {
		t.Error(w.out)
	}
}

func TestAChildWhoseConfigurationCannotWorkEndsEverythingWithItsMessage(t *testing.T) {
	for _, ready := range []bool{false, true} {
		t.Run(fmt.Sprintf("was ready: %v", ready), func(t *testing.T) {
			w := newWorld(t, "a")
			w.setReady(ready, "a")
			w.cfg.OnReady = func(time.Duration) string { return "ready\n" }
			w.run()
			v := w.next()
			if ready {
				w.out.wants(t, "ready\n")
			}
			v.tell(t, "say this model needs another command")
			v.tell(t, "exit 78")
			err := w.end(v)
			var final *FinalError
			if !errors.As(err, &final) || final.Code != ExitConfig || !strings.Contains(err.Error(), "It said:\nthis model needs another command") {
				t.Errorf("%v", err)
			}
			if strings.Contains(w.out.String(), "starting it again") {
				t.Error(w.out)
			}
		})
	}
}

// Go's own panics end with status 2 as well.
func TestAChildThatWasReadyIsStartedAgainWhateverItsStatus(t *testing.T) {
	w := newWorld(t, "a")
	w.setReady(true, "a")
	w.cfg.OnReady = func(time.Duration) string { return "ready\n" }
	w.run()
	v := w.next()
	w.out.wants(t, "ready\n")
	v.tell(t, "exit 2")
	w.clock.pause(t, MinPause)
	w.next()
	w.cancel(nil)
	w.end()
}

func TestStoppingSaysWhatItWaitsForAndHowToHurry(t *testing.T) {
	w := newWorld(t, "deaf")
	w.cfg.Hurry = make(chan struct{})
	w.run()
	v := w.next()
	w.cancel(nil)
	w.out.wants(t, fmt.Sprintf("waiting up to 10s for deaf (pid %d)", v.pid))
	w.out.wants(t, "a second Ctrl-C ends them at once")
	w.end(v)
}

func TestNotReadyInTimeNamesWhatIsMissingAndWhy(t *testing.T) {
	w := newWorld(t, "prefill-0", "decode-0")
	w.setReady(true, "prefill-0")
	asked := make(chan string, 100)
	w.cfg.probe = func(ctx context.Context, name string) error {
		asked <- name
		return w.probe(ctx, name)
	}
	w.run()
	kids := w.both()
	for seen := map[string]int{}; seen["prefill-0"] < 1 || seen["decode-0"] < 2; { // the second comes after the first was told
		seen[<-asked]++
	}
	w.clock.pause(t, DefaultReadyTimeout)
	err := w.end(kids["prefill-0"], kids["decode-0"])
	if err == nil || !strings.Contains(err.Error(), "not ready after 5m0s: decode-0 (503 loading decode-0)") || strings.Contains(err.Error(), "prefill-0") {
		t.Errorf("%v", err)
	}
}

func TestTheEndOfTheContextEndsAllInOrder(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.run()
	kids := w.both()
	w.cancel(nil)
	if err := w.end(kids["a"], kids["b"]); err != nil {
		t.Error(err)
	}
	for _, n := range []string{"a", "b"} {
		if want := n + " ended: signal: terminated"; !strings.Contains(w.out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, w.out)
		}
	}
}

func TestAChildThatIgnoresSIGTERMIsKilledAfterTheTimeout(t *testing.T) {
	w := newWorld(t, "a", "deaf")
	w.run()
	kids := w.both()
	kids["deaf"].tell(t, "deaf")
	kids["deaf"].hears(t, "deaf")
	w.cancel(nil)
	w.out.wants(t, "a ended: signal: terminated")
	w.clock.pause(t, DefaultStopTimeout)
	if err := w.end(kids["a"], kids["deaf"]); err != nil {
		t.Error(err)
	}
	w.out.wants(t, fmt.Sprintf("killing deaf (pid %d): not gone 10s after SIGTERM", kids["deaf"].pid))
	w.out.wants(t, "deaf ended: signal: killed")
}

func TestHurryKillsAtOnce(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		t.Run(fmt.Sprintf("while stopping: %v", stopping), func(t *testing.T) {
			w := newWorld(t, "deaf")
			hurry := make(chan struct{})
			w.cfg.Hurry = hurry
			w.run()
			v := w.next()
			v.tell(t, "deaf")
			v.hears(t, "deaf")
			if stopping {
				w.cancel(nil)
				w.out.wants(t, "stopping")
			}
			close(hurry)
			if err := w.end(v); err != nil {
				t.Error(err)
			}
			w.out.wants(t, "signal: killed")
		})
	}
}

// The terminal's Ctrl-C goes to a whole process group; the children must not be in
// ours, or they would end in no order and before we know of it.
func TestEveryChildHasItsOwnProcessGroup(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.run()
	for _, v := range w.both() {
		if g, err := syscall.Getpgid(v.pid); err != nil || g != v.pid {
			t.Errorf("%s, pid %d, is in group %d, %v", v.name, v.pid, g, err)
		}
	}
	w.cancel(nil)
	w.end()
}

func TestChildrenDieWithAParentThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux's kernel does this")
	}
	w := newWorld(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), envRole+"=parent", envHome+"="+w.home.Addr().String())
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Process.Kill()
	kids := w.both()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	kids["a"].gone(t)
	kids["b"].gone(t)
}

func TestCommandLinesAreQuotedForAShell(t *testing.T) {
	got := Quote([]string{"tandem", "up", "--model", "my model", "it's", "", "$HOME", "a,b"})
	if want := `tandem up --model 'my model' 'it'\''s' '' '$HOME' a,b`; got != want {
		t.Errorf("%s", got)
	}
}
