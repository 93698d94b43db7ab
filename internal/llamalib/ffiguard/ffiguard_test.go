//go:build linux

package ffiguard

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLibFFIIsFoundWhereTheLoaderLooks(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	lib := filepath.Join(with, file)
	write(t, lib, "")
	stale := filepath.Join(without, "stale")
	write(t, stale, "header\x00\x01"+without+"/"+file+"\x00more\x00")
	fresh := filepath.Join(without, "fresh")
	write(t, fresh, "header\x00\x01\x02"+lib+"\x00libgcc_s.so.1\x00")
	none := filepath.Join(without, "none")

	for name, c := range map[string]struct {
		path, list string
		folders    []string
		want       bool
	}{
		"nowhere":                         {"", none, []string{without}, false},
		"in a default folder":             {"", none, []string{without, with}, true},
		"in LD_LIBRARY_PATH":              {without + "::" + with, none, nil, true},
		"in the loader's list":            {"", fresh, nil, true},
		"in the loader's list, but gone":  {"", stale, nil, false},
		"not in a directory of that path": {without + ":", none, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := present(c.path, c.list, c.folders); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
