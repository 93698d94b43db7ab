package house

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Each rule is seen to find what it is for, and to leave alone what it is not for.
func TestEveryRuleFindsItsBreach(t *testing.T) {
	long := "package p\n" + strings.Repeat("\n", MaxLines)
	for name, c := range map[string]struct {
		rule  func(*Tree, func(*File, int, string))
		files map[string]string
		want  string // "path:line", empty for none
	}{
		"a bare go statement":                {bareGo, files("internal/a/a.go", "package a\nfunc f() {\n\tgo f()\n}"), "internal/a/a.go:3"},
		"a go statement in svc":              {bareGo, files("internal/svc/a.go", "package svc\nfunc f() { go f() }"), ""},
		"a go statement in a test":           {bareGo, files("internal/a/a_test.go", "package a\nfunc f() { go f() }"), ""},
		"a go statement in a suite":          {bareGo, files("internal/a/suite.go", "package a\nimport \"testing\"\nfunc f(t *testing.T) { go f(t) }"), ""},
		"a sleep in a test":                  {sleepInTest, files("a_test.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "a_test.go:3"},
		"a sleep under another name":         {sleepInTest, files("a_test.go", "package a\nimport t \"time\"\nfunc f() { t.Sleep(1) }"), "a_test.go:3"},
		"a sleep of somebody else's":         {sleepInTest, files("a_test.go", "package a\nfunc f() { time.Sleep(1) }"), ""},
		"a sleep with synctest":              {sleepInTest, files("a_test.go", "package a\nimport (\n\"time\"\n\"testing/synctest\"\n)\nfunc f() { time.Sleep(1) }"), ""},
		"a sleep outside tests":              {sleepInTest, files("a.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }"), ""},
		"no package comment":                 {packageComment, files("internal/a/a.go", "package a"), "internal/a/a.go:0"},
		"a comment of another package":       {packageComment, files("internal/a/doc.go", "// Package b is b.\npackage a"), "internal/a/doc.go:0"},
		"a comment apart from the clause":    {packageComment, files("internal/a/doc.go", "// Package a is a.\n\npackage a"), "internal/a/doc.go:0"},
		"a package comment":                  {packageComment, files("internal/a/doc.go", "// Package a is a.\npackage a", "internal/a/a.go", "package a"), ""},
		"a comment beside doc.go's place":    {packageComment, files("internal/a/b.go", "// Package a is a.\npackage a", "internal/a/c.go", "package a"), "internal/a/b.go:0"},
		"a small package":                    {packageComment, files("internal/a/a.go", "// Package a is a.\npackage a", "internal/a/a_test.go", "package a"), ""},
		"a command":                          {packageComment, files("cmd/a/main.go", "// Command a does.\npackage main", "cmd/a/b.go", "package main"), ""},
		"room imports the workers":           {imports, files("internal/room/a.go", "package room\nimport _ \""+module+"/internal/kv\""), "internal/room/a.go:2"},
		"room imports ids":                   {imports, files("internal/room/a.go", "package room\nimport _ \""+module+"/internal/id\""), ""},
		"kv imports upward":                  {imports, files("internal/kv/a.go", "package kv\nimport _ \""+module+"/internal/engine\""), "internal/kv/a.go:2"},
		"a transport imports room":           {imports, files("internal/transfer/tcp/a.go", "package tcp\nimport _ \""+module+"/internal/room\""), "internal/transfer/tcp/a.go:2"},
		"an engine imports room":             {imports, files("internal/engine/sim/a.go", "package sim\nimport _ \""+module+"/internal/room\""), "internal/engine/sim/a.go:2"},
		"prefill imports decode":             {imports, files("internal/prefill/a.go", "package prefill\nimport _ \""+module+"/internal/decode\""), "internal/prefill/a.go:2"},
		"the worker imports both":            {imports, files("internal/worker/a.go", "package worker\nimport _ \""+module+"/internal/decode\""), ""},
		"code imports a test rig":            {imports, files("internal/worker/a.go", "package worker\nimport _ \""+module+"/test/pair\""), "internal/worker/a.go:2"},
		"a number of the wall clock":         {wallTime, files("a.go", "package a\nfunc f(t T) {\n\t_ = t.UnixNano() - x\n}"), "a.go:3"},
		"a time of a number":                 {wallTime, files("a.go", "package a\nvar t = time.Unix(1, 0)"), ""},
		"a number of the clock in a test":    {wallTime, files("a_test.go", "package a\nvar n = t.Unix()"), ""},
		"a long file":                        {length, files("a.go", long), "a.go:0"},
		"a long test":                        {length, files("a_test.go", long), ""},
		"a file of the longest length":       {length, files("a.go", long[:len(long)-1]), ""},
		"a registry's host":                  {names, files("a.json", "{\n\"u\": \"https://"+hosts[0]+"/x\"}"), "a.json:2"},
		"a home directory":                   {names, files("a.md", "see /ho"+"me/anna/x"), "a.md:1"},
		"a root's file":                      {names, files("a.md", "(/ro"+"ot/x)"), "a.md:1"},
		"an import path with such a folder":  {names, files("a.md", "example.com/work/main and ../root/x and ./work/x"), ""},
		"a Go file that cannot be parsed":    {bareGo, files("a.go", "packag"), ""},
		"a Go file in testdata is only data": {bareGo, files("internal/a/testdata/a.go", "package a\nfunc f() { go f() }"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			tree := &Tree{}
			for _, path := range slices.Sorted(maps.Keys(c.files)) {
				tree.Files = append(tree.Files, parse(path, []byte(c.files[path])))
			}
			var got []string
			for _, f := range (rule{check: c.rule}).findings(tree) {
				got = append(got, strings.SplitN(f.String(), ": ", 2)[0])
				if f.Line == 0 {
					got[len(got)-1] = f.File + ":0"
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func files(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func TestAnExceptionThatIsNotNeededIsAFinding(t *testing.T) {
	tree := &Tree{Files: []*File{parse("a.go", []byte("package a\nvar n = t.Unix()")), parse("b.go", []byte("package b"))}}
	r := rule{name: "wall", allow: map[string]string{"a.go": "needed", "b.go": "no more"}, check: wallTime}
	got := r.findings(tree)
	if len(got) != 1 || !strings.Contains(got[0].String(), "allow.go:1: wall: b.go is allowed and no longer needs to be") {
		t.Errorf("%v", got)
	}
}
