package main

import (
	"fmt"
	"runtime/debug"

	"github.com/tandem-llm/tandem/internal/llamalib"
)

// commit is set by the Makefile; a plain `go build` in a checkout records it itself.
var commit string

// version tells the builds of Tandem apart, and names the pair of llama.cpp and
// binding that this one is made for. Naming it links llamalib in, whose start-up
// says in words that libffi is missing.
func version() string {
	rev, number := commit, "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			number = v
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && rev == "" {
				rev = s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	if rev == "" {
		rev = "unknown"
	}
	return fmt.Sprintf("%s (commit %s; llama.cpp %s, yzma %s)", number, rev, llamalib.Version, llamalib.YzmaVersion)
}
