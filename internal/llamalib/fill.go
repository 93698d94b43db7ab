package llamalib

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// filler fills one cache entry. The lock of the entry is held.
type filler struct {
	root     string // parent of dir, on the same file system
	dir      string // the entry
	say      func(format string, args ...any)
	progress io.Writer // nil for none
}

// fill tries the sources in order. The error joins what each said.
func (f *filler) fill(ctx context.Context) error {
	src, ok := sources[platform()]
	if !ok {
		return fmt.Errorf("no prebuilt llama.cpp %s is known for %s", Version, platform())
	}
	err := f.from(ctx, src, f.npm)
	if err == nil || ctx.Err() != nil {
		return err
	}
	first := fmt.Errorf("  npm package %s@%s: %w", src.npmPackage, npmVersion, err)
	f.say("%v", first)
	if err = f.from(ctx, src, f.upstream); err == nil {
		return nil
	}
	return errors.Join(first, fmt.Errorf("  upstream release %s of %s: %w", Version, src.repo, err))
}

// from lets one source unpack into a temporary directory, checks the result and
// puts it in place.
func (f *filler) from(ctx context.Context, src source, get func(ctx context.Context, src source, work, into string) (string, error)) error {
	work, err := os.MkdirTemp(f.root, ".fetch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	into := filepath.Join(work, "lib")
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	origin, err := get(ctx, src, work, into)
	if err != nil {
		return err
	}
	if _, err := check(into); err != nil {
		return err
	}
	if err := addPlainNames(into); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, sourceFile), []byte(origin+"\n"), 0o644); err != nil {
		return err
	}
	if err := replaceDir(into, f.dir); err != nil {
		return err
	}
	f.say("llama.cpp %s is in %s (from %s)", Version, f.dir, origin)
	return nil
}
