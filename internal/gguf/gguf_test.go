package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small returns a file with one of each kind of value and two tensors, the first
// of which needs padding.
func small() File {
	ones := func(dst []float32) {
		for i := range dst {
			dst[i] = 1
		}
	}
	return File{
		Meta: []Meta{
			{"general.architecture", "llama"},
			{"general.name", "a small file"},
			{"general.file_type", uint32(0)},
			{"llama.context_length", uint32(4096)},
			{"llama.block_count", uint32(3)},
			{"llama.attention.sliding_window", int32(512)},
			{"some.flag", true},
			{"some.float", float32(0.5)},
			{"some.long", uint64(1 << 40)},
			{"tokenizer.ggml.model", "llama"},
			{"tokenizer.ggml.tokens", []string{"<unk>", "a", "b"}},
			{"tokenizer.ggml.scores", []float32{0, -1, -2}},
			{"tokenizer.ggml.token_type", []int32{2, 1, 1}},
			{"tokenizer.chat_template", "{{ messages }}"},
		},
		Tensors: []Tensor{
			{Name: "a.weight", Dims: []int{3, 5}, Fill: ones},
			{Name: "b.weight", Dims: []int{4}, Fill: ones},
		},
	}
}

func encode(t testing.TB, f File) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadingReturnsWhatWasWritten(t *testing.T) {
	raw := encode(t, small())
	got, err := Read(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	want := Info{
		FormatVersion: 3, Architecture: "llama", Name: "a small file", ContextLength: 4096, SlidingWindow: 512, Layers: 3,
		HasTokenizer: true, TokenizerModel: "llama", VocabSize: 3, ChatTemplate: "{{ messages }}",
		Tensors: 2, Size: int64(len(raw)), Need: int64(len(raw)) - 16, // the last tensor ends before its padding
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := got.CheckServable(); err != nil {
		t.Errorf("CheckServable: %v", err)
	}
}

func TestSizeIsTheNumberOfBytesWritten(t *testing.T) {
	raw := encode(t, small())
	size, err := small().Size()
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(len(raw)) {
		t.Errorf("Size is %d, Write wrote %d", size, len(raw))
	}
}

func TestEveryTruncationIsNamedAsSuch(t *testing.T) {
	raw := encode(t, small())
	whole, err := Read(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for n := range raw {
		_, err := Read(bytes.NewReader(raw[:n]), int64(n))
		switch {
		case n < 4 && !errors.Is(err, ErrNotGGUF):
			t.Fatalf("cut to %d bytes: %v, want ErrNotGGUF", n, err)
		case n >= 4 && int64(n) < whole.Need && !errors.Is(err, ErrTruncated):
			t.Fatalf("cut to %d bytes: %v, want ErrTruncated", n, err)
		case int64(n) >= whole.Need && err != nil:
			t.Fatalf("cut to %d bytes, only padding lost: %v", n, err)
		}
	}
}

func TestAFileThatIsNotGGUFIsNamedWithItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.gguf")
	if err := os.WriteFile(path, []byte("<!DOCTYPE html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadInfo(path)
	if !errors.Is(err, ErrNotGGUF) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "<!DO") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadInfo(filepath.Dir(path)); !errors.Is(err, ErrNotGGUF) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := ReadInfo(path + ".absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func TestClaimsBeyondTheFileAreRefused(t *testing.T) {
	raw := encode(t, small())
	for name, damage := range map[string]func(p []byte){
		"tensor count":         func(p []byte) { binary.LittleEndian.PutUint64(p[8:], 1<<60) },
		"entry count":          func(p []byte) { binary.LittleEndian.PutUint64(p[16:], 1<<60) },
		"length of first key":  func(p []byte) { binary.LittleEndian.PutUint64(p[24:], 1<<60) },
		"version":              func(p []byte) { binary.LittleEndian.PutUint32(p[4:], 9) },
		"big-endian":           func(p []byte) { binary.BigEndian.PutUint32(p[4:], 3) },
		"type of first value":  func(p []byte) { binary.LittleEndian.PutUint32(p[52:], 99) },
		"dimension of tensor":  func(p []byte) { put(p, "a.weight", 4, 1<<63) },
		"offset of tensor":     func(p []byte) { put(p, "a.weight", 24, 1<<62) },
		"length of a template": func(p []byte) { put(p, "tokenizer.chat_template", 4, 1<<62) },
	} {
		t.Run(name, func(t *testing.T) {
			p := bytes.Clone(raw)
			damage(p)
			_, err := Read(bytes.NewReader(p), int64(len(p)))
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrTruncated) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// put overwrites 8 bytes at the given distance behind the first place of name.
func put(p []byte, name string, distance int, v uint64) {
	at := bytes.Index(p, []byte(name)) + len(name) + distance
	binary.LittleEndian.PutUint64(p[at:], v)
}

func TestAFileWithoutTokenizerIsNotServable(t *testing.T) {
	f := small()
	f.Meta = f.Meta[:9]
	raw := encode(t, f)
	info, err := Read(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if err := info.CheckServable(); err == nil || !strings.Contains(err.Error(), "tokenizer") {
		t.Errorf("got %v", err)
	}
}

func TestAValueThatCannotBeWrittenIsNamed(t *testing.T) {
	f := File{Meta: []Meta{{"some.key", 7}}}
	if err := f.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "some.key") {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	raw := encode(f, small())
	f.Add(raw)
	f.Add(raw[:100])
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, p []byte) {
		info, err := Read(bytes.NewReader(p), int64(len(p)))
		if err == nil && info.Need > int64(len(p)) {
			t.Errorf("accepted a file of %d bytes that needs %d", len(p), info.Need)
		}
	})
}
