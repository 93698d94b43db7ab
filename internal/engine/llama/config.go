package llama

import (
	"log/slog"
	"runtime"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
)

// Version is the llama.cpp release this package is made for.
const Version = "v0.5.0"

// spares is the number of sequences kept for exports and imports: one each.
const spares = 2

// dearCacheSeqs is CacheSeqs at most by default where each costs memory.
const dearCacheSeqs = 4

// DefaultChunk is C unless the model's window is smaller.
const DefaultChunk = 256

// Config says what to load and how.
type Config struct {
	// LibDir is the directory with libllama, libggml and libggml-base under their
	// plain names. Required, and the same for every Backend of a process.
	LibDir string
	// ModelPath is the GGUF file, or the first of a split one. Required.
	ModelPath string
	// Name is the model's name as served. Default: the file's base name.
	Name string
	// Context is the number of KV cells, shared by all sequences; the library
	// rounds it up to a multiple of 256. Default 4096.
	Context int
	// Slots is the number of sequences at once. Default 16.
	Slots int
	// CacheSeqs is the number of sequences kept after their end, for others to
	// start from; negative: none. They cost nothing but names, except with a
	// sliding window, where each adds window × layers to the window's cache, up to
	// Context cells in all, and with recurrent layers, where each has a state.
	// Default: Slots, and at most 4 where they cost memory.
	CacheSeqs int
	// Threads computes. Default: cores − 1, at least 1, so that the rest of the
	// process always gets a core.
	Threads int
	// KVType is "f16", "bf16" or "q8_0". Default "f16".
	KVType string
	// Chunk is C. Default 256. It is halved until it is below the model's
	// sliding window, unless SWAFull.
	Chunk int
	// SWAFull keeps all positions of sliding-window layers, at the price of memory.
	SWAFull bool
	// GPULayers is how many layers go to a GPU, if the libraries have a backend
	// for it: 0 none, −1 all.
	GPULayers int
	// MustHandOver makes New fail with an *engine.NoHandOverError, as soon as that is
	// known, if the model's KV cannot be handed over.
	MustHandOver bool
	// SkipSelfTest leaves out the self-test at load, for tests of this package.
	SkipSelfTest bool
	// NoDigest leaves the weights out of the layout fingerprint. Only for tests.
	NoDigest bool
	// Log hears what the library says, at debug level. Default slog.Default.
	Log *slog.Logger
}

// cellStep is the multiple in which llama.cpp makes KV cells, whatever it is asked for.
const cellStep = 256

func (c Config) withDefaults() Config {
	if c.Context <= 0 {
		c.Context = 4096
	}
	c.Context = (c.Context + cellStep - 1) / cellStep * cellStep
	if c.Slots <= 0 {
		c.Slots = 16
	}
	if c.Threads <= 0 {
		c.Threads = max(runtime.NumCPU()-1, 1)
	}
	if c.KVType == "" {
		c.KVType = "f16"
	}
	if c.Chunk <= 0 {
		c.Chunk = DefaultChunk
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

func kvType(name string) (yzma.GGMLType, error) {
	switch name {
	case "f16":
		return yzma.GGMLTypeF16, nil
	case "bf16":
		return yzma.GGMLTypeBF16, nil
	case "q8_0":
		return yzma.GGMLTypeQ8_0, nil
	}
	return 0, engine.Misconfigured("KV type %q: use f16, bf16 or q8_0", name)
}

// belowWindow halves the chunk until it is smaller than the window. At the
// window's size a paused sequence could already lose its chunk's first cell.
func belowWindow(chunk, window int) int {
	for window > 1 && chunk >= window {
		chunk /= 2
	}
	return max(chunk, 1)
}
