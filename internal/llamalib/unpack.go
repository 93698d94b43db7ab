package llamalib

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Bounds of what is unpacked. The archives' checksums are known, so these only
// guard against a mistake in a table.
const (
	maxUnpacked = 2 << 30 // bytes, all files together; CUDA builds take several hundred MB
	maxFiles    = 500
)

// unpack writes the files of a gzipped tar archive that want accepts into dir, all
// on one level, and links between them. Links to anywhere else are refused.
func unpack(archive, dir string, want func(name string) bool) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(archive), err)
	}
	left, files := int64(maxUnpacked), 0
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(archive), err)
		}
		if !want(h.Name) || (h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink) {
			continue
		}
		if files++; files > maxFiles || h.Size > left {
			return fmt.Errorf("%s: more than %d files or %d bytes", filepath.Base(archive), maxFiles, maxUnpacked)
		}
		left -= h.Size
		dst := filepath.Join(dir, path.Base(h.Name))
		if h.Typeflag == tar.TypeSymlink {
			if strings.ContainsAny(h.Linkname, `/\`) {
				return fmt.Errorf("%s: %s links to %s", filepath.Base(archive), h.Name, h.Linkname)
			}
			err = os.Symlink(h.Linkname, dst)
		} else {
			err = writeFile(dst, r)
		}
		if err != nil {
			return err
		}
	}
	if files == 0 {
		return fmt.Errorf("%s holds none of the libraries", filepath.Base(archive))
	}
	return nil
}

func writeFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
