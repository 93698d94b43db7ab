package llamalib

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// versionInName finds the version in the two forms in use:
// libllama.v0.5.0.so (and .dylib), and libllama.so.0.5.0.
var versionInName = regexp.MustCompile(`^libllama\.(?:v(\d+\.\d+\.\d+)\.(?:so|dylib)|so\.(\d+\.\d+\.\d+)|(\d+\.\d+\.\d+)\.dylib)$`)

// metadataFile is what the npm packages put beside the libraries.
const metadataFile = "_nlcBuildMetadata.json"

// unversioned is the Version of libraries whose names say nothing and whose
// symbols are the right ones.
const unversioned = "unversioned"

// check looks for the three libraries in dir and returns their version. The error
// wraps ErrNotFound, or ErrVersion and names both versions.
func check(dir string) (string, error) {
	llama, err := library(dir, "libllama")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"libggml", "libggml-base"} {
		if _, err := library(dir, name); err != nil {
			return "", err
		}
	}
	found, err := versionOf(dir, llama)
	if err != nil {
		return "", err
	}
	if found != Version && found != unversioned {
		return "", wrongVersion(dir, found)
	}
	return found, nil
}

func wrongVersion(dir, found string) error {
	return fmt.Errorf("%w: found %s in %s, need %s because this build uses yzma %s, which fits that release only; point --llama-lib or %s at %s, or unset both and Tandem fetches it",
		ErrVersion, found, dir, Version, YzmaVersion, EnvDir, Version)
}

// library returns the path of one library in dir: under its plain name, or the one
// versioned name there is.
func library(dir, name string) (string, error) {
	plain := filepath.Join(dir, name+suffix())
	if _, err := os.Stat(plain); err == nil {
		return plain, nil
	}
	for _, pattern := range []string{name + ".v*" + suffix(), name + suffix() + ".*", name + ".*" + suffix()} {
		if m, _ := filepath.Glob(filepath.Join(dir, pattern)); len(m) > 0 {
			return m[0], nil
		}
	}
	return "", fmt.Errorf("%w: %s holds no %s%s", ErrNotFound, dir, name, suffix())
}

// versionOf finds out the version of the libllama at path in dir: from its file
// name behind all links, from the package's metadata, or from its symbols.
func versionOf(dir, path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	var named string
	if m := versionInName.FindStringSubmatch(filepath.Base(real)); m != nil {
		named = "v" + m[1] + m[2] + m[3]
	}
	// Builds from a checkout are called libllama.so.0.0.<build>: no release.
	if named != "" && !strings.HasPrefix(named, "v0.0.") {
		return named, nil
	}
	var meta struct {
		BuildOptions struct {
			LlamaCpp struct{ Release string }
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, metadataFile)); err == nil && json.Unmarshal(raw, &meta) == nil {
		if r := meta.BuildOptions.LlamaCpp.Release; r != "" {
			return r, nil
		}
	}
	if filepath.Ext(path) == ".dylib" {
		return unversioned, nil
	}
	return versionBySymbols(dir, real)
}

// newest are functions of libllama that the pinned binding needs and that releases
// before the pinned one do not all have; next is one that the release after it
// brought and that the next binding needs.
var (
	newest = []string{"llama_set_sampler", "llama_model_n_layer_nextn", "llama_vocab_get_suppress_tokens", "llama_n_rs_seq", "llama_load_mode_name"}
	next   = "llama_batch_ext_init"
)

// versionBySymbols tells an older, a fitting and a newer library apart.
func versionBySymbols(dir, path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w: %s is not a shared library: %w", ErrNotFound, path, err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return "", fmt.Errorf("%w: %s: %w", ErrNotFound, path, err)
	}
	have := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			have[s.Name] = true
		}
	}
	for _, name := range newest {
		if !have[name] {
			return "", wrongVersion(dir, "an older build (it lacks "+name+")")
		}
	}
	if have[next] {
		return "", wrongVersion(dir, "a newer build (it has "+next+")")
	}
	return unversioned, nil
}
