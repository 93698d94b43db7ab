package house

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheHouseIsInOrder(t *testing.T) {
	tree, err := Load(root(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Files) < 100 {
		t.Fatalf("only %d files were found", len(tree.Files))
	}
	for _, f := range tree.Check() {
		t.Error(f)
	}
}

// root is the folder with go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above")
		}
		dir = filepath.Dir(dir)
	}
}
