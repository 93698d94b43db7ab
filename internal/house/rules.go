package house

import (
	"cmp"
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// MaxLines is how long a file may be: what one can hold in mind.
const MaxLines = 400

// rule is one rule. check reports line 0 for a file as a whole.
type rule struct {
	name  string
	allow map[string]string // path → why it may
	check func(t *Tree, report func(f *File, line int, what string))
}

var rules = []rule{
	{"no bare go statement", nil, bareGo},
	{"tests do not sleep", nil, sleepInTest},
	{"every package says what it is in doc.go", nil, packageComment},
	{"arrows point down", nil, imports},
	{"no arithmetic on wall time", allowWallTime, wallTime},
	{"files are short", allowLong, length},
	{"nothing names a registry's host or a path of one machine", nil, names},
}

// Check returns the findings of every rule, in the order of files.
func (t *Tree) Check() []Finding {
	var out []Finding
	for _, r := range rules {
		out = append(out, r.findings(t)...)
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return out
}

func (r rule) findings(t *Tree) []Finding {
	var out []Finding
	used := map[string]bool{}
	r.check(t, func(f *File, line int, what string) {
		if _, ok := r.allow[f.Path]; ok {
			used[f.Path] = true
			return
		}
		out = append(out, Finding{f.Path, line, r.name, what})
	})
	for path := range r.allow {
		if !used[path] {
			out = append(out, Finding{"internal/house/allow.go", 0, r.name, path + " is allowed and no longer needs to be"})
		}
	}
	return out
}

// golang calls visit for every Go file.
func (t *Tree) golang(visit func(f *File)) {
	for _, f := range t.Files {
		if f.Go != nil {
			visit(f)
		}
	}
}

// A goroutine that nobody supervises, beats for or joins is how a reader dies unseen.
func bareGo(t *Tree, report func(*File, int, string)) {
	t.golang(func(f *File) {
		if f.Test() || f.Dir() == "internal/svc" {
			return
		}
		f.each(func(n ast.Node) {
			if g, ok := n.(*ast.GoStmt); ok {
				report(f, f.line(g), "start it with svc.Group.Go or Task, so that it is supervised and joined")
			}
		})
	})
}

// A sleep makes a test slow when it is long and wrong when it is short. In a bubble of
// testing/synctest it is neither: the clock there is a fake one.
func sleepInTest(t *Tree, report func(*File, int, string)) {
	t.golang(func(f *File) {
		if !f.Test() || f.imports("testing/synctest") != "" {
			return
		}
		for _, call := range f.calls("time", "Sleep") {
			report(f, f.line(call), "wait for a signal, or use testing/synctest")
		}
	})
}

// calls returns the calls of a package's function.
func (f *File) calls(pkg, function string) []*ast.CallExpr {
	name := f.imports(pkg)
	if name == "" {
		return nil
	}
	var out []*ast.CallExpr
	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == function {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
				out = append(out, call)
			}
		}
	})
	return out
}

// A command says it above any file's package clause, and so may a package of one file.
func packageComment(t *Tree, report func(*File, int, string)) {
	packages := map[string][]*File{}
	t.golang(func(f *File) {
		if !strings.HasSuffix(f.Path, "_test.go") {
			packages[f.Dir()] = append(packages[f.Dir()], f)
		}
	})
	for dir, files := range packages {
		name := files[0].Go.Name.Name
		begins, anywhere := "Package "+name+" ", len(files) == 1
		if name == "main" {
			begins, anywhere = "Command ", true
		}
		if !slices.ContainsFunc(files, func(f *File) bool {
			return f.Go.Doc != nil && strings.HasPrefix(f.Go.Doc.Text(), begins) && (anywhere || f.Base() == "doc.go")
		}) {
			report(files[0], 0, fmt.Sprintf("%s has no doc.go with a comment that begins %q", dir, begins))
		}
	}
}

// length does not count tests: a table of cases may be long.
func length(t *Tree, report func(*File, int, string)) {
	t.golang(func(f *File) {
		if n := strings.Count(string(f.Text), "\n"); n > MaxLines && !f.Test() {
			report(f, 0, fmt.Sprintf("%d lines, at most %d: one noun per file", n, MaxLines))
		}
	})
}
