package llamalib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-llm/tandem/internal/fetch"
)

// Lib is a directory that the binding can load: it holds libllama, libggml and
// libggml-base under the plain names, of the pinned version.
type Lib struct {
	Dir     string // absolute
	Version string // as found: "v0.5.0", or "unversioned" when only the symbols could be checked
	Source  string // where it came from, in words
}

// Options of Find. The zero value looks in the environment and the cache, and
// fetches without a word.
type Options struct {
	Dir      string    // directory the user named (--llama-lib); empty: none
	Progress io.Writer // what is being done, for people; nil: nothing
	Offline  bool      // fetch nothing
}

// Errors of Find wrap one of these, or the context's cause.
var (
	ErrNotFound = errors.New("llama.cpp's libraries were not found")
	ErrVersion  = errors.New("wrong version of llama.cpp's libraries")
	ErrNoLibFFI = errors.New("libffi is not installed")
)

// Find returns a usable library directory, fetching it if needed. The errors say
// what was looked at and what the user can do. A directory that the user named and
// that is not usable is an error, never skipped.
func Find(ctx context.Context, opts Options) (Lib, error) {
	if err := checkFFI(); err != nil {
		return Lib{}, err
	}
	if opts.Dir != "" {
		return fromUser(opts.Dir, "--llama-lib "+opts.Dir)
	}
	if dir := os.Getenv(EnvDir); dir != "" {
		return fromUser(dir, EnvDir+"="+dir)
	}
	root, err := cacheRoot()
	if err != nil {
		return Lib{}, err
	}
	dir := filepath.Join(root, cacheName())
	if lib, err := fromCache(dir); err == nil {
		return lib, nil
	}
	if opts.Offline {
		return Lib{}, fmt.Errorf("%w: %s is not there, and fetching was not allowed; %s", ErrNotFound, dir, advice())
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return Lib{}, err
	}
	say := func(format string, args ...any) {
		if opts.Progress != nil {
			fmt.Fprintf(opts.Progress, format+"\n", args...)
		}
	}
	unlock, err := fetch.Lock(ctx, dir+".lock", func() { say("another process is fetching llama.cpp %s; waiting", Version) })
	if err != nil {
		return Lib{}, err
	}
	defer unlock()
	if lib, err := fromCache(dir); err == nil {
		return lib, nil // the other process was done in the meantime
	}
	f := &filler{root: root, dir: dir, say: say, progress: opts.Progress}
	if err := f.fill(ctx); err != nil {
		if ctx.Err() != nil {
			return Lib{}, context.Cause(ctx)
		}
		return Lib{}, fmt.Errorf("%w, and could not be fetched:\n%w\n%s", ErrNotFound, err, advice())
	}
	return fromCache(dir)
}

// Cached returns the library in the cache, if it holds one that can be used.
func Cached() (Lib, bool) {
	root, err := cacheRoot()
	if err != nil {
		return Lib{}, false
	}
	lib, err := fromCache(filepath.Join(root, cacheName()))
	return lib, err == nil
}

// sourceFile holds, in a cache entry, where it came from.
const sourceFile = "tandem-source.txt"

func fromCache(dir string) (Lib, error) {
	version, err := check(dir)
	if err != nil {
		return Lib{}, err
	}
	if err := plainNames(dir); err != nil {
		return Lib{}, err
	}
	from, err := os.ReadFile(filepath.Join(dir, sourceFile))
	if err != nil {
		return Lib{}, err
	}
	return Lib{Dir: dir, Version: version, Source: strings.TrimSpace(string(from))}, nil
}

// fromUser checks a directory the user named. If the libraries in it have only
// versioned names, the result is a directory of links in the cache.
func fromUser(dir, origin string) (Lib, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Lib{}, err
	}
	if st, err := os.Stat(abs); err != nil {
		return Lib{}, fmt.Errorf("%w in %s: %w", ErrNotFound, origin, err)
	} else if !st.IsDir() {
		return Lib{}, fmt.Errorf("%w in %s: it is not a directory", ErrNotFound, origin)
	}
	// An unpacked npm package has them in bins/<platform>.
	if inner := filepath.Join(abs, "bins", sources[platform()].npmFolder); isDir(inner) {
		abs = inner
	}
	version, err := check(abs)
	if err != nil {
		return Lib{}, fmt.Errorf("%s: %w", origin, err)
	}
	if plainNames(abs) == nil {
		return Lib{Dir: abs, Version: version, Source: origin}, nil
	}
	root, err := cacheRoot()
	if err != nil {
		return Lib{}, err
	}
	linked, err := linkDir(root, abs)
	if err != nil {
		return Lib{}, fmt.Errorf("%s: the libraries have versioned names only, and linking them failed: %w", origin, err)
	}
	return Lib{Dir: linked, Version: version, Source: origin}, nil
}

// cacheRoot returns the directory of our cache entries; it may not exist yet.
func cacheRoot() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory for llama.cpp's libraries: %w; %s", err, advice())
	}
	return filepath.Join(base, "tandem", "llama"), nil
}

// advice says how to do without fetching.
func advice() string {
	return fmt.Sprintf("to use libraries of your own, give a directory that holds libllama%[1]s, libggml%[1]s and the libggml-* of llama.cpp %[2]s with --llama-lib DIR or %[3]s=DIR",
		suffix(), Version, EnvDir)
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().Type() == fs.ModeDir
}
