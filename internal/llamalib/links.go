package llamalib

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// loaded are the libraries that the binding opens by their plain names.
var loaded = []string{"libllama", "libggml", "libggml-base"}

// plainNames returns nil if dir holds every library the binding opens by name.
func plainNames(dir string) error {
	for _, name := range loaded {
		if _, err := os.Stat(filepath.Join(dir, name+suffix())); err != nil {
			return err
		}
	}
	return nil
}

// addPlainNames links the plain names that are missing in dir to versioned ones.
func addPlainNames(dir string) error {
	for _, name := range loaded {
		path, err := library(dir, name)
		if err != nil {
			return err
		}
		plain := filepath.Join(dir, name+suffix())
		if path == plain {
			continue
		}
		if err := os.Symlink(filepath.Base(path), plain); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// linkDir returns a directory below root that shows every file of dir, and the
// plain names besides. dir itself is left alone.
func linkDir(root, dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	link := filepath.Join(root, "links-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(root, ".links-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(tmp, e.Name())); err != nil {
			return "", err
		}
	}
	if err := addPlainNames(tmp); err != nil {
		return "", err
	}
	return link, replaceDir(tmp, link)
}

// replaceDir moves the directory tmp to dst, over what is there. A process that
// has files of the old directory open or mapped keeps them.
func replaceDir(tmp, dst string) error {
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	for range 3 {
		err := os.Rename(tmp, dst)
		if err == nil {
			return nil
		}
		if !isDir(dst) {
			return err
		}
		old, err := os.MkdirTemp(filepath.Dir(dst), ".old-*")
		if err != nil {
			return err
		}
		moved := os.Rename(dst, filepath.Join(old, "dir"))
		if err := os.RemoveAll(old); err != nil {
			return err
		}
		if moved != nil && !errors.Is(moved, fs.ErrNotExist) {
			return moved
		}
	}
	return fmt.Errorf("%s is being replaced by other processes", dst)
}
