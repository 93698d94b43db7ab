package llamalib

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tandem-llm/tandem/internal/fetch"
)

// house gives a test an empty cache, an empty PATH and no environment of ours.
func house(t *testing.T) (cache, bin string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the fakes have Linux's file names")
	}
	cache, bin = t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", bin)
	t.Setenv(EnvDir, "")
	return cache, bin
}

// archive returns a gzipped tar of the named files; "a -> b" is a link.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, n := range names {
		h := &tar.Header{Name: n, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(n))}
		if name, target, ok := strings.Cut(n, " -> "); ok {
			h = &tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			fmt.Fprint(w, n)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fakeNPM puts an npm on PATH that leaves the tarball where it runs and counts its
// runs in a file, and makes its checksum the expected one for this test.
func fakeNPM(t *testing.T, bin string, tarball []byte) (runs string) {
	t.Helper()
	runs = filepath.Join(bin, "runs")
	put(t, filepath.Join(bin, "tarball"), string(tarball))
	put(t, filepath.Join(bin, "npm"), fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %s\n/bin/cp %s/tarball package.tgz\n", runs, bin))
	sum := sha512.Sum512(tarball)
	src := sources[platform()]
	src.npmIntegrity = "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	useSource(t, src)
	return runs
}

func useSource(t *testing.T, src source) {
	old := sources[platform()]
	sources[platform()] = src
	t.Cleanup(func() { sources[platform()] = old })
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func npmFiles() []string {
	p := "package/bins/" + sources[platform()].npmFolder + "/"
	return []string{"package/package.json", p + "libllama.v0.5.0.so", p + "libggml.v0.5.0.so", p + "libggml-base.so", p + "libggml-cpu-x64.so", p + "llama-addon.node", p + "sub/else"}
}

func TestAnEmptyCacheIsFilledFromTheNPMPackage(t *testing.T) {
	cache, bin := house(t)
	runs := fakeNPM(t, bin, archive(t, npmFiles()...))
	if lib, ok := Cached(); ok {
		t.Fatalf("before: %+v", lib)
	}
	var said bytes.Buffer
	lib, err := Find(context.Background(), Options{Progress: &said})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(cache, "tandem", "llama", cacheName()); lib.Dir != want || lib.Version != Version {
		t.Errorf("got %+v, want it in %s", lib, want)
	}
	if !strings.Contains(lib.Source, "@"+npmVersion) || !strings.Contains(said.String(), "npm pack") {
		t.Errorf("source %q, said %q", lib.Source, said.String())
	}
	for name, want := range map[string]bool{"libllama.so": true, "libggml.so": true, "libggml-base.so": true, "libggml-cpu-x64.so": true, "llama-addon.node": false, "package.json": false, "else": false} {
		if _, err := os.Stat(filepath.Join(lib.Dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	again, err := Find(context.Background(), Options{Offline: true})
	if err != nil || again != lib {
		t.Errorf("second time: %+v, %v", again, err)
	}
	if got, ok := Cached(); !ok || got != lib {
		t.Errorf("Cached: %+v, %v", got, ok)
	}
	if raw, _ := os.ReadFile(runs); strings.Count(string(raw), "\n") != 1 || !strings.Contains(string(raw), "--ignore-scripts") {
		t.Errorf("npm was run with %q", raw)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "tandem", "llama", ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestManyAtOnceFetchOnce(t *testing.T) {
	_, bin := house(t)
	runs := fakeNPM(t, bin, archive(t, npmFiles()...))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := Find(context.Background(), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if raw, _ := os.ReadFile(runs); strings.Count(string(raw), "\n") != 1 {
		t.Errorf("npm was run with %q", raw)
	}
}

func TestAChangedPackageIsRefused(t *testing.T) {
	_, bin := house(t)
	fakeNPM(t, bin, archive(t, npmFiles()...))
	put(t, filepath.Join(bin, "tarball"), string(archive(t, append(npmFiles(), "package/extra")...)))
	noUpstream(t)
	_, err := Find(context.Background(), Options{})
	if !errors.Is(err, ErrNotFound) || !errors.Is(err, fetch.ErrChecksum) {
		t.Errorf("got %v", err)
	}
	if lib, ok := Cached(); ok {
		t.Errorf("it was kept: %+v", lib)
	}
}

// noUpstream makes the release page unreachable at once.
func noUpstream(t *testing.T) {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	useUpstream(t, s.URL, manifestSHA256)
}

func useUpstream(t *testing.T, host, digest string) {
	t.Helper()
	t.Setenv("NO_PROXY", "127.0.0.1")
	oldHost, oldDigest := releaseHost, pinnedManifest
	releaseHost, pinnedManifest = host, digest
	t.Cleanup(func() { releaseHost, pinnedManifest = oldHost, oldDigest })
}

func TestWithoutNPMAndUpstreamTheErrorSaysWhatToDo(t *testing.T) {
	house(t)
	noUpstream(t)
	_, err := Find(context.Background(), Options{})
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"npm is not installed", "upstream release v0.5.0", "--llama-lib DIR", EnvDir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestAFailingNPMIsQuoted(t *testing.T) {
	_, bin := house(t)
	put(t, filepath.Join(bin, "npm"), "#!/bin/sh\necho 'npm error code E404' >&2\nexit 1\n")
	noUpstream(t)
	if _, err := Find(context.Background(), Options{}); err == nil || !strings.Contains(err.Error(), "E404") {
		t.Errorf("got %v", err)
	}
}

func TestOfflineFetchesNothing(t *testing.T) {
	_, bin := house(t)
	runs := fakeNPM(t, bin, archive(t, npmFiles()...))
	if _, err := Find(context.Background(), Options{Offline: true}); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(runs); err == nil {
		t.Error("npm was run")
	}
}

func TestTheUpstreamReleaseIsTheLastResort(t *testing.T) {
	house(t)
	src := sources[platform()]
	const tag = "b1234"
	asset := fmt.Sprintf(src.asset, tag)
	release := archive(t, "llama-b1234/libllama.so.0.5.0", "llama-b1234/libllama.so -> libllama.so.0.5.0", "llama-b1234/libggml.so", "llama-b1234/libggml-base.so", "llama-b1234/llama-cli")
	sum := sha256.Sum256(release)
	list := fmt.Sprintf(`{"version":1,"tag":%q,"sources":{%q:{"tag":%q,"assets":{%q:{"sha256":%q}}}}}`, Version, src.repo, tag, asset, hex.EncodeToString(sum[:]))
	digest := sha256.Sum256([]byte(list))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/" + builderRepo + "/releases/download/v0.5.0/v0.5.0.json":
			fmt.Fprint(w, list)
		case "/" + src.repo + "/releases/download/" + tag + "/" + asset:
			w.Write(release)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()

	useUpstream(t, s.URL, strings.Repeat("0", 64))
	if _, err := Find(context.Background(), Options{}); !errors.Is(err, fetch.ErrChecksum) {
		t.Errorf("a list of checksums that is not the recorded one: %v", err)
	}
	useUpstream(t, s.URL, hex.EncodeToString(digest[:]))
	lib, err := Find(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if lib.Version != Version || !strings.Contains(lib.Source, tag) {
		t.Errorf("got %+v", lib)
	}
	if _, err := os.Stat(filepath.Join(lib.Dir, "llama-cli")); err == nil {
		t.Error("a program was unpacked")
	}
}

func TestALinkOutOfTheArchiveIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tgz")
	put(t, path, string(archive(t, "libllama.so -> ../../etc/passwd")))
	if err := unpack(path, dir, func(string) bool { return true }); err == nil || !strings.Contains(err.Error(), "../../etc/passwd") {
		t.Errorf("got %v", err)
	}
}
