package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// content is what the servers here serve: 300 kB that are not periodic.
var content = func() []byte {
	var b bytes.Buffer
	for i := range 50_000 {
		fmt.Fprintf(&b, "%06d", i*7919%1_000_000)
	}
	return b.Bytes()
}()

func sumOf(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

// server serves with h and records the Range header of each request.
func server(t *testing.T, h http.HandlerFunc) (url string, ranges *[]string) {
	t.Helper()
	ranges = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*ranges = append(*ranges, r.Header.Get("Range"))
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, ranges
}

func whole(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func part(t *testing.T, held []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.part")
	if held != nil {
		if err := os.WriteFile(path, held, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func wantWhole(t *testing.T, path string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file has %d bytes, %v; want the %d served", len(got), err, len(content))
	}
}

func TestADownloadContinuesWhereTheLastOneStopped(t *testing.T) {
	url, ranges := server(t, whole)
	d := Download{URL: url, Part: part(t, content[:1000]), SHA256: sumOf(content), Size: int64(len(content))}
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, d.Part)
	if fmt.Sprint(*ranges) != "[bytes=1000-]" {
		t.Errorf("asked for %v", *ranges)
	}
	if err := d.Run(context.Background()); err != nil || len(*ranges) != 1 {
		t.Errorf("a whole file was asked for again: %v, %v", err, *ranges)
	}
}

func TestABrokenConnectionIsResumedInTheSameRun(t *testing.T) {
	url, ranges := server(t, func(w http.ResponseWriter, r *http.Request) {
		whole(&breaker{w, 100_000}, r)
	})
	for name, size := range map[string]int64{"size known": int64(len(content)), "size unknown": 0} {
		t.Run(name, func(t *testing.T) {
			*ranges = nil
			d := Download{URL: url, Part: part(t, nil), SHA256: sumOf(content), Size: size}
			if err := d.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			wantWhole(t, d.Part)
			if len(*ranges) < 3 {
				t.Errorf("requests: %v", *ranges)
			}
		})
	}
}

// breaker cuts the connection after left bytes.
type breaker struct {
	http.ResponseWriter
	left int
}

func (b *breaker) Write(p []byte) (int, error) {
	if len(p) > b.left {
		b.ResponseWriter.Write(p[:b.left])
		b.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

func TestAServerWithoutRangesStartsOver(t *testing.T) {
	url, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(content) })
	d := Download{URL: url, Part: part(t, []byte("of another file")), SHA256: sumOf(content), Size: int64(len(content))}
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, d.Part)
}

func TestABeginningOfAnotherFileIsThrownAway(t *testing.T) {
	url, ranges := server(t, whole)
	for name, held := range map[string][]byte{
		"shorter": bytes.Repeat([]byte("x"), 5000), "as long": bytes.Repeat([]byte("x"), len(content)), "longer": bytes.Repeat([]byte("x"), len(content)+1),
	} {
		for _, size := range []int64{0, int64(len(content))} {
			t.Run(fmt.Sprintf("%s, size %d", name, size), func(t *testing.T) {
				*ranges = nil
				d := Download{URL: url, Part: part(t, held), SHA256: sumOf(content), Size: size}
				if err := d.Run(context.Background()); err != nil {
					t.Fatalf("%v after %v", err, *ranges)
				}
				wantWhole(t, d.Part)
			})
		}
	}
}

func TestACorruptFileIsNotKept(t *testing.T) {
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		bad := bytes.Clone(content)
		bad[4321]++
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(bad))
	})
	d := Download{URL: url, Part: part(t, nil), SHA256: sumOf(content), Size: int64(len(content))}
	if err := d.Run(context.Background()); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), d.SHA256) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(d.Part); err == nil {
		t.Error("it was kept")
	}
}

func TestATruncatedFileIsKeptForTheNextRun(t *testing.T) {
	short := true
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		if short {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content[:1234]))
			return
		}
		whole(w, r)
	})
	d := Download{URL: url, Part: part(t, nil), SHA256: sumOf(content), Size: int64(len(content))}
	if err := d.Run(context.Background()); err == nil {
		t.Fatal("a truncated file was accepted")
	}
	short = false
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, d.Part)
}

func TestAServerThatSendsTooMuchIsCutOff(t *testing.T) {
	url, _ := server(t, whole)
	d := Download{URL: url, Part: part(t, nil), SHA256: sumOf(content[:1000]), Size: 1000}
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := partSize(d.Part); n != 1000 {
		t.Errorf("%d bytes were written", n)
	}
}

func TestErrorsSayWhatTheServerSaid(t *testing.T) {
	url, ranges := server(t, http.NotFound)
	d := Download{URL: url + "/m.gguf", Part: part(t, nil), SHA256: sumOf(content)}
	if err := d.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "404") || !strings.Contains(err.Error(), d.URL) {
		t.Errorf("got %v", err)
	}
	if len(*ranges) != 1 {
		t.Errorf("it was tried %d times", len(*ranges))
	}
	d.SHA256 = ""
	if err := d.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("without a checksum: %v", err)
	}
}

func TestTheContextEndsADownload(t *testing.T) {
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(context.Background())
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(content[:1000])
		w.(http.Flusher).Flush()
		cancel(cause)
		<-r.Context().Done()
	})
	d := Download{URL: url, Part: part(t, nil), SHA256: sumOf(content)}
	if err := d.Run(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestALockIsHeldByOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = Lock(ctx, path, cancel)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second holder: %v", err)
	}
	again, err := Lock(context.Background(), path, unlock)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestACommandsErrorQuotesItsOutput(t *testing.T) {
	err := Command(context.Background(), t.TempDir(), "sh", "-c", "echo first; echo the reason >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("got %v", err)
	}
	if err := Command(context.Background(), "", "no-such-program-here"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestProgressIsABarOnATerminalAndLinesElsewhere(t *testing.T) {
	clock := time.Unix(0, 0)
	now := func() time.Time { return clock }
	for _, bar := range []bool{true, false} {
		var out bytes.Buffer
		p := newProgress(&out, "m", 200e6, 50e6, bar, now)
		clock = clock.Add(10 * time.Second)
		p.Set(100e6)
		p.Write(make([]byte, 1e6)) // too soon after the last to be shown
		p.Done()
		shown := out.String()
		if !strings.Contains(shown, "m  ") || !strings.Contains(shown, " 50 %  100 of 200 MB  5.0 MB/s  0:20 left") {
			t.Errorf("bar %v: %q", bar, shown)
		}
		if strings.Contains(shown, "\r") != bar || strings.Contains(shown, "[====") != bar {
			t.Errorf("bar %v: %q", bar, shown)
		}
		if lines := strings.Count(shown, "\n"); (bar && lines != 1) || (!bar && lines != 3) {
			t.Errorf("bar %v: %d lines in %q", bar, lines, shown)
		}
	}
	var none *Progress
	none.Set(1)
	none.Done()
	if NewProgress(nil, "", 0, 0) != nil {
		t.Error("no writer still gives a Progress")
	}
}
