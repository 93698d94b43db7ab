package llama

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	yzma "github.com/hybridgroup/yzma/pkg/llama"
)

// enoughMemory refuses a context whose KV cache cannot fit what the machine has
// left. The library would get its memory anyway, and the kernel would end the
// process when it writes there. It estimates from below and never refuses on a
// system it cannot ask.
func (b *Backend) enoughMemory() error {
	free, ok := available()
	if !ok || b.c.GPULayers != 0 {
		return nil
	}
	need := b.kvBytes()
	if need > free {
		return fmt.Errorf("a KV cache of %d cells (%s) needs at least %d MiB of memory, %d MiB are available: use a smaller context",
			b.c.Context, b.c.KVType, need>>20, free>>20)
	}
	return nil
}

// kvBytes estimates the cache's size from below: windowed layers may keep fewer
// cells and recurrent ones have none, so where a model has any of these only one
// layer in eight is counted.
func (b *Backend) kvBytes() int64 {
	width := int64(yzma.ModelNEmbd(b.model)) / max(int64(yzma.ModelNHead(b.model)), 1) * int64(yzma.ModelNHeadKV(b.model))
	bytes := width * 2 * 2 // K and V, 16 bits
	if b.c.KVType == "q8_0" {
		bytes = bytes * 34 / 64
	}
	layers := int64(yzma.ModelNLayer(b.model))
	switch {
	case yzma.ModelIsRecurrent(b.model):
		return 0
	case yzma.ModelIsHybrid(b.model), yzma.ModelNSWA(b.model) > 0 && !b.c.SWAFull:
		layers = max(layers/8, 1)
	}
	return bytes * layers * int64(b.c.Context)
}

// available returns the memory new allocations can have: what the kernel says,
// or what the process's control group leaves, whichever is less.
func available() (int64, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	free := int64(-1)
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err == nil {
				free = kb << 10
			}
		}
	}
	if free < 0 {
		return 0, false
	}
	limit, ok1 := number("/sys/fs/cgroup/memory.max")
	used, ok2 := number("/sys/fs/cgroup/memory.current")
	if ok1 && ok2 {
		free = min(free, max(limit-used, 0))
	}
	return free, true
}

func number(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
