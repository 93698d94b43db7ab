package router

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/svc"
)

// logged writes n records through an access log of at most so many bytes and returns
// it, ended.
func logged(t *testing.T, path string, n int, most int64) *accessLog {
	t.Helper()
	a, err := newAccessLog(path, most, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	g := svc.New(context.Background(), "test", slog.New(slog.DiscardHandler))
	g.Go("access log", a.run)
	for i := range n {
		a.add(Record{RID: id.RID(fmt.Sprint(i)), Outcome: "aborted", Code: "client_gone", Attempts: []*Attempt{{Room: id.Room(i + 1)}}})
	}
	g.Stop(nil)
	g.Wait()
	return a
}

// read returns the records of a file in its order.
func read(t *testing.T, path string) (found []Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		found = append(found, r)
	}
	return found
}

func TestEveryEndedRequestIsALineOfTheAccessLogAlsoAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.jsonl")
	logged(t, path, 3, 1<<20)
	a := logged(t, path, 2, 1<<20)
	found := read(t, path)
	if len(found) != 5 || a.lost.Load() != 0 {
		t.Fatalf("%d lines, %d lost", len(found), a.lost.Load())
	}
	for i, want := range []string{"0", "1", "2", "0", "1"} {
		if r := found[i]; string(r.RID) != want || r.Code != "client_gone" || r.Attempts[0].Room == 0 {
			t.Errorf("line %d: %+v", i, r)
		}
	}
}

func TestTheAccessLogNeverGrowsBeyondTwiceItsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.jsonl")
	const most = 2000
	a := logged(t, path, 200, most)
	if a.lost.Load() > 0 {
		t.Fatalf("%d lines are lost", a.lost.Load())
	}
	for _, p := range []string{path, path + ".1"} {
		st, err := os.Stat(p)
		if err != nil || st.Size() > most || st.Size() == 0 {
			t.Errorf("%s: %v, %v", p, st, err)
		}
	}
	older, newer := read(t, path+".1"), read(t, path)
	if got := string(newer[len(newer)-1].RID); got != "199" || len(older) == 0 {
		t.Errorf("the last line is of %s, and %d were put aside", got, len(older))
	}
}

func TestADiskThatTakesNothingCostsLinesAndNoRequest(t *testing.T) {
	a, err := newAccessLog(filepath.Join(t.TempDir(), "access.jsonl"), 1<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range accessLogQueue + 7 { // nobody writes
		a.add(Record{})
	}
	if n := a.lost.Load(); n != 7 {
		t.Errorf("%d lines are counted as lost, 7 did not fit", n)
	}
	a.file.Close()
	a.write(<-a.lines)
	if n := a.lost.Load(); n != 8 {
		t.Errorf("%d, want the failed write counted too", n)
	}
}
