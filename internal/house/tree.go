package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the import path of this repository's root.
const module = "github.com/tandem-llm/tandem"

// maxFile bounds the files that are looked at, in bytes; larger ones are data.
const maxFile = 4 << 20

// Finding is one breach of a rule.
type Finding struct {
	File string // relative to the root, with slashes
	Line int    // 0: the file as a whole
	Rule string
	What string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, max(f.Line, 1), f.Rule, f.What)
}

// File is one text file.
type File struct {
	Path string // relative to the root, with slashes
	Text []byte
	Go   *ast.File // nil if it is no Go file that can be parsed

	set *token.FileSet
}

// Tree is what the rules look at.
type Tree struct{ Files []*File }

// Load reads the files below root that git tracks or would, were they added. Without git it reads all files but those
// in folders whose names begin with a dot.
func Load(root string) (*Tree, error) {
	paths, err := tracked(root)
	if err != nil {
		return nil, err
	}
	t := &Tree{}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		full := filepath.Join(root, filepath.FromSlash(path))
		st, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted and not yet committed
		}
		if err != nil {
			return nil, err
		}
		if !st.Mode().IsRegular() || st.Size() > maxFile {
			continue
		}
		text, err := os.ReadFile(full)
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		t.Files = append(t.Files, parse(path, text))
	}
	return t, nil
}

func tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
	}
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if rel, err := filepath.Rel(root, path); err == nil && d.Type().IsRegular() {
			paths = append(paths, filepath.ToSlash(rel))
		}
		return nil
	})
	return paths, err
}

// parse returns a File. Go files in testdata are data. One that cannot be parsed is
// the compiler's to complain of.
func parse(path string, text []byte) *File {
	f := &File{Path: path, Text: text, set: token.NewFileSet()}
	if !strings.HasSuffix(path, ".go") || strings.Contains("/"+path, "/testdata/") {
		return f
	}
	if parsed, err := parser.ParseFile(f.set, path, text, parser.ParseComments); err == nil {
		f.Go = parsed
	}
	return f
}

// Dir returns the folder, "" for the root.
func (f *File) Dir() string {
	dir, _, _ := cutLast(f.Path)
	return dir
}

// Base returns the file's name.
func (f *File) Base() string {
	_, base, _ := cutLast(f.Path)
	return base
}

func cutLast(path string) (dir, base string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// Test tells whether the file is only for tests: by its name, or because it imports
// package testing, as a suite does that other packages run.
func (f *File) Test() bool {
	return strings.HasSuffix(f.Path, "_test.go") || f.imports("testing") != ""
}

// imports returns the name under which the file imports a package, "" if it does not.
func (f *File) imports(path string) string {
	for _, i := range f.Go.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && p == path {
			if i.Name != nil {
				return i.Name.Name
			}
			_, base, _ := cutLast(path)
			return base
		}
	}
	return ""
}

// own returns the imports that are this repository's, relative to its root, with lines.
func (f *File) own() map[string]int {
	out := map[string]int{}
	for _, i := range f.Go.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && strings.HasPrefix(p, module+"/") {
			out[strings.TrimPrefix(p, module+"/")] = f.line(i)
		}
	}
	return out
}

func (f *File) line(n ast.Node) int { return f.set.Position(n.Pos()).Line }

// each calls visit for every node of the file.
func (f *File) each(visit func(ast.Node)) {
	ast.Inspect(f.Go, func(n ast.Node) bool {
		if n != nil {
			visit(n)
		}
		return true
	})
}
