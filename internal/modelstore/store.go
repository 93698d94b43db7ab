package modelstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-llm/tandem/internal/fetch"
	"github.com/tandem-llm/tandem/internal/gguf"
)

// EnvDir names the environment variable that overrides the cache directory.
const EnvDir = "TANDEM_MODEL_DIR"

// Options of the functions here. The zero value works.
type Options struct {
	Dir      string       // cache directory; empty: EnvDir, else the user's cache directory
	Progress io.Writer    // what is being done, for people; nil: nothing
	Offline  bool         // fetch nothing
	HubURL   string       // base address of the model hub; empty: HF_ENDPOINT, else the public one
	Client   *http.Client // for the hub; nil: one with short connect timeouts
}

// Errors wrap one of these, one of package gguf's or fetch's, or the context's cause.
var (
	ErrUnknown = errors.New("unknown model")
	ErrFetch   = errors.New("the model could not be fetched")
)

// Resolve returns the path of the GGUF file that nameOrPath stands for, and fetches
// it if it is a known model that is not in the cache. An existing path wins over a
// name. The file is a GGUF file, is not cut short, and has a tokenizer; whether the
// engine knows its architecture is the engine's to say. The empty string stands for
// Default.
func Resolve(ctx context.Context, nameOrPath string, opts Options) (string, error) {
	if nameOrPath == "" {
		nameOrPath = Default
	}
	st, err := os.Stat(nameOrPath)
	if err == nil && !st.IsDir() {
		return nameOrPath, checkModel(nameOrPath)
	}
	k, ok := Lookup(nameOrPath)
	if !ok {
		return "", unknown(nameOrPath, st, err)
	}
	path, err := Pull(ctx, k, opts)
	if err != nil {
		return "", err
	}
	return path, checkModel(path)
}

func checkModel(path string) error {
	info, err := gguf.ReadInfo(path)
	if err != nil {
		return err
	}
	if err := info.CheckServable(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// unknown is the error for what is neither a file nor a known name. st and err are
// what the file system said about it.
func unknown(name string, st fs.FileInfo, err error) error {
	var names []string
	for _, k := range known {
		names = append(names, k.Name)
	}
	hint := fmt.Sprintf("known models are: %s; the path of a .gguf file works too", strings.Join(names, ", "))
	switch {
	case st != nil && st.IsDir():
		return fmt.Errorf("%w: %s is a directory; give the .gguf file in it; %s", ErrUnknown, name, hint)
	case strings.ContainsAny(name, `/\`) || strings.HasSuffix(strings.ToLower(name), ".gguf"):
		return fmt.Errorf("%w: %w; %s", ErrUnknown, err, hint)
	}
	return fmt.Errorf("%w %q: %s", ErrUnknown, name, hint)
}

// Dir returns the cache directory; it may not exist yet.
func Dir(opts Options) (string, error) {
	if opts.Dir != "" {
		return filepath.Abs(opts.Dir)
	}
	if dir := os.Getenv(EnvDir); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory for models: %w; set %s", err, EnvDir)
	}
	return filepath.Join(base, "tandem", "models"), nil
}

// Path returns where the model is or would be in the cache, and whether it is there
// whole (by its size; its checksum was compared when it was fetched).
func Path(k Known, opts Options) (path string, cached bool, err error) {
	dir, err := Dir(opts)
	if err != nil {
		return "", false, err
	}
	path = filepath.Join(dir, k.File)
	st, err := os.Stat(path)
	return path, err == nil && st.Size() == k.Size, nil
}

// Pull returns the path of a known model in the cache, fetching it if needed. What a
// failed attempt brought is kept for the next.
func Pull(ctx context.Context, k Known, opts Options) (string, error) {
	path, cached, err := Path(k, opts)
	if err != nil || cached {
		return path, err
	}
	if opts.Offline {
		return "", fmt.Errorf("%w: %s is not in %s, and fetching was not allowed", ErrFetch, k.Name, filepath.Dir(path))
	}
	p := &puller{Known: k, opts: opts, path: path}
	unlock, err := p.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, cached, err := Path(k, opts); err != nil || cached {
		return path, err // the other process was done in the meantime
	}
	if err := p.pull(ctx); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w:\n%w\nwhat came is kept: run it again to resume, or give the path of a .gguf file", k.Name, ErrFetch, err)
	}
	return path, nil
}

// Remove deletes a known model and what attempts to fetch it left. It returns the
// bytes that were freed; removing what is not there frees 0 and is no error.
func Remove(ctx context.Context, k Known, opts Options) (int64, error) {
	path, _, err := Path(k, opts)
	if err != nil {
		return 0, err
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	p := &puller{Known: k, opts: opts, path: path}
	unlock, err := p.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	var freed int64
	for _, target := range []string{path, p.part(), p.joined(), p.wheels()} {
		freed += treeSize(target)
		if err := os.RemoveAll(target); err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// treeSize returns the bytes of a file, or of all files below a directory.
func treeSize(path string) int64 {
	var n int64
	filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if st, err := d.Info(); err == nil {
			n += st.Size()
		}
		return nil
	})
	return n
}

// lock takes the lock of one model between processes.
func (p *puller) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return nil, err
	}
	return fetch.Lock(ctx, p.path+".lock", func() { p.say("another process is fetching %s; waiting", p.Name) })
}
