package house

import (
	"fmt"
	"strings"
)

// layer says what the packages below a path may import of ours: other paths, each
// with all below it. Tests may import more.
type layer struct {
	path string
	may  []string
	why  string
}

var layers = []layer{
	{"internal/id", nil, "everything stands on ids"},
	{"internal/svc", nil, "everything is started by it"},
	{"internal/llamalib/ffiguard", nil, "any import could make it start after the package it guards"},
	{"internal/room", []string{"internal/id"}, "the protocol is pure"},
	{"internal/kv", []string{"internal/id"}, "memory knows nothing of who uses it"},
	{"internal/transfer", []string{"internal/id", "internal/kv", "internal/svc", "internal/transfer"}, "a transport knows bytes and leases, never a room's rules: a rule that lives in each transport is missing from one of them"},
	{"internal/engine", []string{"internal/id", "internal/kv", "internal/svc", "internal/sample", "internal/gguf", "internal/grammar", "internal/engine"}, "an engine knows tokens and KV, never rooms or peers"},
	{"internal/control", []string{"internal/id", "internal/kv", "internal/room", "internal/svc", "internal/transfer"}, "sessions carry messages and decide nothing"},
	{"internal/router", []string{"internal/id", "internal/api", "internal/room", "internal/svc", "internal/router"}, "the router holds no model, no tokenizer and no KV"},
}

// siblings may not import each other: what both need lies below them.
var siblings = []string{"internal/prefill", "internal/decode", "internal/router"}

func imports(t *Tree, report func(*File, int, string)) {
	t.golang(func(f *File) {
		if f.Test() {
			return
		}
		for path, line := range f.own() {
			if under(path, "test") && !under(f.Dir(), "test") {
				report(f, line, fmt.Sprintf("%s imports %s: tests stand on the code", f.Dir(), path))
			}
			for _, s := range siblings {
				if under(path, s) && !under(f.Dir(), s) && anyUnder(f.Dir(), siblings) {
					report(f, line, fmt.Sprintf("%s imports %s: what both need lies below them", f.Dir(), path))
				}
			}
			for _, l := range layers {
				if under(f.Dir(), l.path) && !anyUnder(path, l.may) {
					report(f, line, fmt.Sprintf("%s imports %s: %s", f.Dir(), path, l.why))
				}
			}
		}
	})
}

// under tells whether path is base or below it.
func under(path, base string) bool { return path == base || strings.HasPrefix(path, base+"/") }

func anyUnder(path string, bases []string) bool {
	for _, b := range bases {
		if under(path, b) {
			return true
		}
	}
	return false
}
