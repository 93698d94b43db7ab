package testmodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-llm/tandem/internal/gguf"
)

// Path returns the path of the model of that kind, and makes it first if the
// cache does not hold it. The file is shared by all tests on this machine.
func Path(kind Kind) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return PathIn(filepath.Join(base, "tandem", "testmodels"), kind)
}

// PathIn is Path with a cache directory of the caller's choice.
func PathIn(dir string, kind Kind) (string, error) {
	r, err := recipeOf(kind)
	if err != nil {
		return "", err
	}
	file := build(r)
	size, err := file.Size()
	if err != nil {
		return "", err
	}
	key, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(key)
	path := filepath.Join(dir, fmt.Sprintf("%v-%s.gguf", kind, hex.EncodeToString(sum[:8])))
	if st, err := os.Stat(path); err == nil && st.Size() == size {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("testmodel: %w", err)
	}
	if err := write(path, file); err != nil {
		return "", fmt.Errorf("testmodel: %w", err)
	}
	return path, nil
}

// write writes the file beside path and renames it into place.
func write(path string, file gguf.File) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	if err = errors.Join(file.Write(f), f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
