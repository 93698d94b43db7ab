package testmodel

import (
	"context"
	"os"
	"testing"

	"github.com/tandem-llm/tandem/internal/llamalib"
)

// EnvRequire makes a missing llama.cpp a failure instead of a reason to skip, and
// allows fetching it, when set to 1. CI sets it.
const EnvRequire = "TANDEM_REQUIRE_LLAMA"

// Library returns the directory of the real llama.cpp libraries. Without them it
// skips the test, or fails it if EnvRequire is 1.
func Library(tb testing.TB) string {
	tb.Helper()
	required := os.Getenv(EnvRequire) == "1"
	lib, err := llamalib.Find(context.Background(), llamalib.Options{Offline: !required})
	switch {
	case err == nil:
		return lib.Dir
	case required:
		tb.Fatalf("%s=1, and: %v", EnvRequire, err)
	default:
		tb.Skipf("this test needs llama.cpp (set %s=1 to fetch it): %v", EnvRequire, err)
	}
	return ""
}
