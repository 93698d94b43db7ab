package room

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// guarded are the files whose conditions and statements are mutated: all that
// decides something. The tables in table.go are mutated cell by cell.
var guarded = []string{"book.go", "do.go", "input.go", "limits.go", "park.go", "record.go"}

// instrument builds this package's tests once, with a switch at every condition
// and every statement of the guarded files, and returns the names of the
// switches. One binary then is every mutant: mutateEnv says which.
func instrument(binary string) (names []string, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	overlay := map[string]string{}
	tmp := filepath.Dir(binary)
	for _, f := range guarded {
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		out := filepath.Join(tmp, f)
		if err := os.WriteFile(out, switched(f, src, &names), 0o644); err != nil {
			return nil, err
		}
		overlay[filepath.Join(dir, f)] = out
	}
	switches := filepath.Join(tmp, "switches.go")
	if err := os.WriteFile(switches, switchFile(names), 0o644); err != nil {
		return nil, err
	}
	overlay[filepath.Join(dir, "switches.go")] = switches
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return nil, err
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the instrumented package does not build: %w\n%s", err, out)
	}
	return names, nil
}

// switchFile is what the switches call.
func switchFile(names []string) []byte {
	return fmt.Appendf(nil, `package room

import "os"

var active = func() int {
	for i, n := range []string{%s} {
		if n == os.Getenv(%q) {
			return i
		}
	}
	return -1
}()

func always(id int, b bool) bool {
	switch active {
	case id:
		return true
	case id + 1:
		return false
	}
	return b
}

func border(id int, b, other bool) bool {
	if active == id {
		return other
	}
	return b
}

func does(id int) bool { return active != id }
`, quoted(names), mutateEnv)
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(q, ", ")
}

// edit puts text at a place of a file.
type edit struct {
	at, rank int
	text     string
}

// switcher writes switches into one file.
type switcher struct {
	file  string
	src   []byte
	fset  *token.FileSet
	fn    string
	edits []edit
	names *[]string
}

// switched returns a file with its switches.
func switched(file string, src []byte, names *[]string) []byte {
	s := &switcher{file: file, src: src, fset: token.NewFileSet(), names: names}
	f, err := parser.ParseFile(s.fset, file, src, 0)
	if err != nil {
		panic(err)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			s.fn = fn.Name.Name
			ast.Inspect(fn.Body, s.visit)
		}
	}
	slices.SortStableFunc(s.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
	var out []byte
	at := 0
	for _, e := range s.edits {
		out = append(append(out, src[at:e.at]...), e.text...)
		at = e.at
	}
	return append(out, src[at:]...)
}

func (s *switcher) offset(p token.Pos) int { return s.fset.Position(p).Offset }

func (s *switcher) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(s.src[s.offset(n.Pos()):s.offset(n.End())])), " ")
}

// name gives a mutant a name that outlives changes elsewhere in the file.
func (s *switcher) name(n ast.Node, what string) int {
	name := fmt.Sprintf("%s: %s: %s", s.fn, s.text(n), what)
	for i := 2; slices.Contains(*s.names, name); i++ {
		name = fmt.Sprintf("%s: %s: %s (%d)", s.fn, s.text(n), what, i)
	}
	*s.names = append(*s.names, name)
	return len(*s.names) - 1
}

func (s *switcher) wrap(n ast.Node, before, after string) {
	// At one place, what ends there comes before what begins there, inner ends first.
	s.edits = append(s.edits, edit{s.offset(n.Pos()), 1, before}, edit{s.offset(n.End()), 0, after})
}

func (s *switcher) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		s.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			s.condition(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					s.condition(e)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			s.ifBoolean(e)
		}
	case *ast.AssignStmt:
		for _, e := range n.Rhs {
			s.ifBoolean(e)
		}
	case *ast.BlockStmt:
		s.statements(n.List)
	case *ast.CaseClause:
		s.statements(n.Body)
	}
	return true
}

// ifBoolean switches an expression that is a condition by its operator.
func (s *switcher) ifBoolean(e ast.Expr) {
	if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR || compares(b.Op)) {
		s.condition(e)
	}
}

func compares(op token.Token) bool {
	switch op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		return true
	}
	return false
}

var neighbour = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

// condition switches every operand of a condition: always true, always false, and
// the border of a comparison.
func (s *switcher) condition(e ast.Expr) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		s.condition(x.X)
		return
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			s.condition(x.X)
			s.condition(x.Y)
			return
		}
		if other, ok := neighbour[x.Op]; ok {
			id := s.name(e, "with "+other)
			s.wrap(e, fmt.Sprintf("border(%d, ", id), fmt.Sprintf(", %s %s %s)", s.text(x.X), other, s.text(x.Y)))
		}
	}
	id := s.name(e, "always true")
	s.name(e, "never true")
	s.edits = append(s.edits, edit{s.offset(e.Pos()), 0, fmt.Sprintf("always(%d, ", id)}, edit{s.offset(e.End()), 1, ")"})
}

// statements switches what only acts: assignments to what is there, calls, steps.
func (s *switcher) statements(list []ast.Stmt) {
	for _, st := range list {
		switch x := st.(type) {
		case *ast.AssignStmt:
			if x.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if c, ok := x.X.(*ast.CallExpr); ok {
				if f, ok := c.Fun.(*ast.Ident); ok && f.Name == "panic" {
					continue
				}
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		id := s.name(st, "left out")
		s.edits = append(s.edits, edit{s.offset(st.Pos()), -1, fmt.Sprintf("if does(%d) { ", id)}, edit{s.offset(st.End()), 2, " }"})
	}
}
