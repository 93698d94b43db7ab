package llama

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

func TestWhatCannotBeLoadedIsNamedInWords(t *testing.T) {
	lib := testmodel.Library(t)
	path, err := testmodel.Path(testmodel.LlamaGQA)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	bare := filepath.Join(dir, "bare.gguf")
	f, err := os.Create(bare)
	if err != nil {
		t.Fatal(err)
	}
	if err := (gguf.File{Meta: []gguf.Meta{{Key: "general.architecture", Value: "llama"}}}).Write(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	unknown := file("unknown.gguf", []byte(strings.Replace(string(whole), "llama", "wombt", 1)))
	for name, c := range map[string]struct {
		c     Config
		want  string
		never bool // no other try can mend it
	}{
		"no path":        {Config{LibDir: lib}, "no model file given", true},
		"missing":        {Config{LibDir: lib, ModelPath: filepath.Join(dir, "nope.gguf")}, "does not exist", false},
		"not GGUF":       {Config{LibDir: lib, ModelPath: file("text.gguf", []byte("hello world, this is text"))}, "not a GGUF file", true},
		"truncated":      {Config{LibDir: lib, ModelPath: file("cut.gguf", whole[:len(whole)/2])}, "truncated", false},
		"no tensors":     {Config{LibDir: lib, ModelPath: bare}, "no tensors", true},
		"unknown arch":   {Config{LibDir: lib, ModelPath: unknown}, "wombt", true},
		"no library":     {Config{LibDir: dir, ModelPath: path}, "already loaded from", false},
		"odd KV type":    {Config{LibDir: lib, ModelPath: path, KVType: "q3"}, "use f16, bf16 or q8_0", true},
		"too much cache": {Config{LibDir: lib, ModelPath: path, Context: 1 << 30}, "use a smaller context", false},
		"too many slots": {Config{LibDir: lib, ModelPath: path, Slots: 100000}, "at most", true},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no library" {
				load(t, testmodel.LlamaGQA, Config{SkipSelfTest: true})
			}
			c.c.Log = slog.New(slog.DiscardHandler)
			b, err := New(c.c)
			if err == nil {
				b.Close()
				t.Fatal("loaded")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%q does not say %q", err, c.want)
			}
			var config *engine.ConfigError
			if errors.As(err, &config) != c.never {
				t.Errorf("%v: a fault of the configuration: %v, want %v", err, !c.never, c.never)
			}
		})
	}
	for i := range aborts {
		if aborts[i].taken.Load() {
			t.Fatal("a failed load kept its interrupt flag")
		}
	}
}

func TestTheLayoutTellsApartWhatCannotBeHandedOver(t *testing.T) {
	seen := map[string]string{}
	for name, c := range map[string]Config{"f16": {}, "bf16": {KVType: "bf16"}, "q8_0": {KVType: "q8_0"}, "chunk 128": {Chunk: 128}, "full": {SWAFull: true}} {
		b := load(t, testmodel.Gemma3, c)
		key := b.info.Layout.String()
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same layout", name, other)
		}
		seen[key] = name
		t.Log(b.info.Describe)
	}
	one, two := load(t, testmodel.Gemma3, Config{}), load(t, testmodel.Gemma3, Config{Context: 2048, Slots: 7, Threads: 2})
	if one.info.Layout != two.info.Layout {
		t.Error("size and speed changed the layout")
	}
}

func TestTheChunkStaysBelowTheWindow(t *testing.T) {
	for _, c := range []struct{ chunk, window, want int }{{256, 0, 256}, {256, 512, 256}, {256, 256, 128}, {512, 512, 256}, {256, 100, 64}, {256, 1, 256}} {
		if got := belowWindow(c.chunk, c.window); got != c.want {
			t.Errorf("chunk %d, window %d: %d, want %d", c.chunk, c.window, got, c.want)
		}
	}
	if b := load(t, testmodel.Gemma3, Config{Chunk: 1024}); b.info.Chunk != 256 {
		t.Errorf("chunk %d", b.info.Chunk)
	}
}

func TestAChangedModelFileHasAnotherDigest(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := filepath.Join(t.TempDir(), "m.gguf")
	sum := func(content string) uint64 {
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time from the cache
			if _, err := modelDigest(p); err != nil {
				t.Fatal(err)
			}
		}
		d, _ := modelDigest(p)
		return d
	}
	a := sum("one")
	if b := sum("three"); a == b {
		t.Fatal("the same digest")
	}
	if got := modelFiles("/x/m-00001-of-00003.gguf"); len(got) != 3 || got[2] != "/x/m-00003-of-00003.gguf" {
		t.Fatalf("%v", got)
	}
}
