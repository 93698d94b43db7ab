package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"
	yzma "github.com/hybridgroup/yzma/pkg/llama"
)

// library is the process's one copy of llama.cpp. Native callbacks are finite
// and never freed, so it makes exactly two.
var library struct {
	sync.Mutex
	dir   string // loaded from; "" before
	abort uintptr
}

// aborts holds the interrupt flags; a context's callback data is its index. The
// library reads a flag while it computes, so flags must never move or go away.
var aborts [256]struct {
	raised atomic.Bool
	taken  atomic.Bool
}

// loadLibrary loads llama.cpp from dir, once per process.
func loadLibrary(dir string) error {
	library.Lock()
	defer library.Unlock()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if library.dir == dir {
		return nil
	}
	if library.dir != "" {
		return fmt.Errorf("llama.cpp is already loaded from %s: a process cannot load it again from %s", library.dir, dir)
	}
	for _, name := range []string{"ggml", "ggml-base", "llama"} {
		file := filepath.Join(dir, libraryFile(name))
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("no llama.cpp library: %w (give the directory of the llama.cpp %s libraries)", err, Version)
		}
	}
	if err := yzma.Load(dir); err != nil {
		return fmt.Errorf("the libraries in %s are not the llama.cpp %s this program needs: %w", dir, Version, err)
	}
	yzma.LogSet(purego.NewCallback(hearLibrary))
	library.abort = purego.NewCallback(abortCallback)
	yzma.Init()
	if yzma.GGMLBackendRegCount() == 0 {
		return fmt.Errorf("the libraries in %s have no compute backend (libggml-cpu-*): %s", dir, heard.firstError())
	}
	library.dir = dir
	return nil
}

func libraryFile(name string) string {
	switch runtime.GOOS {
	case "darwin":
		return "lib" + name + ".dylib"
	case "windows":
		return name + ".dll"
	}
	return "lib" + name + ".so"
}

// abortCallback runs inside the library between two operations of a graph.
func abortCallback(index uintptr) uintptr {
	if aborts[index].raised.Load() {
		return 1
	}
	return 0
}

// takeAbort reserves a flag for one context.
func takeAbort() (int, error) {
	for i := range aborts {
		if aborts[i].taken.CompareAndSwap(false, true) {
			aborts[i].raised.Store(false)
			return i, nil
		}
	}
	return 0, fmt.Errorf("%d engines are loaded already", len(aborts))
}
