package house

import "go/ast"

// stamps are the methods that turn a time into a number of the wall clock.
var stamps = map[string]bool{"Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true}

// wallTime finds the first step of all arithmetic on wall time: to take a number of
// it. A wall clock jumps, and a deadline made from it jumps along; time.Time's own
// Sub, Before and After use the monotonic clock. So every place that takes a number
// is listed, with its reason.
func wallTime(t *Tree, report func(*File, int, string)) {
	t.golang(func(f *File) {
		if f.Test() {
			return
		}
		f.each(func(n ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 0 {
				return
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && stamps[s.Sel.Name] {
				report(f, f.line(call), "."+s.Sel.Name+"() of the wall clock: compare times with Sub, Before and After")
			}
		})
	})
}
