package testmodel

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tandem-llm/tandem/internal/gguf"
)

// golden holds the SHA-256 of each model. A change here changes every number a
// test recorded; raise recipe.Format together with it.
var golden = map[Kind]string{
	LlamaGQA:  "08be8369ffd9411ef54fd0aa6cac714ff0948dbcdf557c9d9507607068383b2e",
	MLA:       "fd7d23861d591915245db739406265e8e8c22796cf21d892dd65fba4f694d706",
	Gemma3:    "ac206246bbfbd34168ea0512c789a284b2ec6dd7bd45de10580e76b5125cb478",
	Recurrent: "4e044fa6c9fb847f8f5c3ac69640479e187631af1683b131ad3bf2e2fdf93c82",
	Hybrid:    "2ad0adffd106bd974d89a049311730332267a362436907f01ec5282988cf10c7",
}

func TestAModelIsTheSameBytesOnEveryMachine(t *testing.T) {
	for _, kind := range All() {
		t.Run(kind.String(), func(t *testing.T) {
			path, err := PathIn(t.TempDir(), kind)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(raw)
			if got := hex.EncodeToString(sum[:]); got != golden[kind] {
				t.Errorf("sha256 is %s, want %s", got, golden[kind])
			}
		})
	}
}

func TestItsMetadataSaysWhatTheKindPromises(t *testing.T) {
	for _, kind := range All() {
		t.Run(kind.String(), func(t *testing.T) {
			path, err := Path(kind)
			if err != nil {
				t.Fatal(err)
			}
			info, err := gguf.ReadInfo(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := info.CheckServable(); err != nil {
				t.Error(err)
			}
			if info.ContextLength != 4096 || info.ChatTemplate == "" || info.TokenizerModel != "llama" {
				t.Errorf("got %+v", info)
			}
			if (kind == Gemma3) != (info.SlidingWindow == 512) {
				t.Errorf("the sliding window is %d", info.SlidingWindow)
			}
		})
	}
}

func TestManyAtOnceGetTheSameWholeFile(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	paths := make([]string, 8)
	for i := range paths {
		wg.Go(func() {
			p, err := PathIn(dir, LlamaGQA)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := gguf.ReadInfo(p); err != nil {
				t.Error(err)
			}
			paths[i] = p
		})
	}
	wg.Wait()
	for _, p := range paths {
		if p != paths[0] {
			t.Errorf("got %s and %s", p, paths[0])
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestACutFileInTheCacheIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	path, err := PathIn(dir, LlamaGQA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	again, err := PathIn(dir, LlamaGQA)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.ReadInfo(again); err != nil {
		t.Error(err)
	}
}

func TestAKindThatDoesNotExistIsAnError(t *testing.T) {
	if p, err := Path(Kind(99)); err == nil {
		t.Errorf("got %s", p)
	}
}
