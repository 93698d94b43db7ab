package llamalib

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// libs makes a directory with the named files.
func libs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		put(t, filepath.Join(dir, n), n)
	}
	return dir
}

func TestADirectoryOfTheUserIsUsedAsItIs(t *testing.T) {
	house(t)
	dir := libs(t, "libllama.v0.5.0.so", "libggml.so", "libggml-base.so")
	if err := os.Symlink("libllama.v0.5.0.so", filepath.Join(dir, "libllama.so")); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"flag", "environment"} {
		t.Run(how, func(t *testing.T) {
			opts := Options{Dir: dir}
			if how == "environment" {
				opts.Dir = ""
				t.Setenv(EnvDir, dir)
			}
			lib, err := Find(context.Background(), opts)
			if err != nil {
				t.Fatal(err)
			}
			if lib.Dir != dir || lib.Version != Version || !strings.Contains(lib.Source, dir) {
				t.Errorf("got %+v", lib)
			}
		})
	}
}

func TestVersionedNamesAreLinkedInTheCacheAndNotInTheUsersDirectory(t *testing.T) {
	house(t)
	dir := libs(t, "libllama.v0.5.0.so", "libggml.v0.5.0.so", "libggml-base.so", "libggml-cpu-x64.so")
	for range 2 {
		lib, err := Find(context.Background(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if lib.Dir == dir {
			t.Fatal("it was used in place")
		}
		for _, n := range []string{"libllama.so", "libggml.so", "libggml-base.so", "libggml-cpu-x64.so"} {
			if _, err := os.Stat(filepath.Join(lib.Dir, n)); err != nil {
				t.Error(err)
			}
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 4 {
		t.Errorf("the user's directory holds %v", entries)
	}
}

func TestTheFlagBeatsTheEnvironment(t *testing.T) {
	house(t)
	dir := libs(t, "libllama.v0.5.0.so", "libggml.v0.5.0.so", "libggml-base.so")
	t.Setenv(EnvDir, filepath.Join(dir, "absent"))
	if _, err := Find(context.Background(), Options{Dir: dir}); err != nil {
		t.Error(err)
	}
	if _, err := Find(context.Background(), Options{}); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), EnvDir) {
		t.Errorf("the environment names nothing: %v", err)
	}
}

func TestAWrongPairIsRefusedWithBothVersions(t *testing.T) {
	house(t)
	meta := libs(t, "libllama.so", "libggml.so", "libggml-base.so")
	put(t, filepath.Join(meta, metadataFile), `{"buildOptions":{"llamaCpp":{"repo":"ggml-org/llama.cpp","release":"v0.6.1"}}}`)
	for name, c := range map[string]struct{ dir, found string }{
		"by file name":        {libs(t, "libllama.v0.4.2.so", "libggml.v0.4.2.so", "libggml-base.so"), "v0.4.2"},
		"by suffix":           {libs(t, "libllama.so.0.6.0", "libggml.so", "libggml-base.so"), "v0.6.0"},
		"by package metadata": {meta, "v0.6.1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(context.Background(), Options{Dir: c.dir})
			if !errors.Is(err, ErrVersion) {
				t.Fatalf("got %v", err)
			}
			for _, want := range []string{"found " + c.found, "need v0.5.0", "yzma v1.28.0", EnvDir} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestAnIncompleteDirectoryNamesWhatIsMissing(t *testing.T) {
	house(t)
	_, err := Find(context.Background(), Options{Dir: libs(t, "libllama.v0.5.0.so", "libggml.so")})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "libggml-base.so") {
		t.Errorf("got %v", err)
	}
	_, err = Find(context.Background(), Options{Dir: libs(t, "libllama.so", "libggml.so", "libggml-base.so")})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "not a shared library") {
		t.Errorf("got %v", err)
	}
}

// The real libraries, without the names that tell their version, are recognised by
// their symbols.
func TestRealLibrariesAreRecognisedBySymbols(t *testing.T) {
	lib, ok := Cached()
	if !ok {
		if os.Getenv("TANDEM_REQUIRE_LLAMA") == "1" {
			t.Fatal("TANDEM_REQUIRE_LLAMA=1, and the cache holds no llama.cpp")
		}
		t.Skip("the cache holds no llama.cpp; starting an engine fetches it")
	}
	dir := t.TempDir()
	for _, name := range loaded {
		raw, err := os.ReadFile(filepath.Join(lib.Dir, name+suffix()))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name+suffix()), string(raw))
	}
	if got, err := check(dir); err != nil || got != unversioned {
		t.Errorf("got %q, %v", got, err)
	}
}
