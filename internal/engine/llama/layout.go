package llama

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yzma "github.com/hybridgroup/yzma/pkg/llama"
	"github.com/zeebo/xxh3"

	"github.com/tandem-llm/tandem/internal/kv"
)

// fingerprint sets Info.Layout and Describe: all that must be equal on two sides
// of a hand-over. The digest covers every byte of the model's files, so it stands
// for tensors and tokenizer; what is set at load comes on top.
func (b *Backend) fingerprint() error {
	digest := uint64(0)
	if !b.c.NoDigest {
		var err error
		if digest, err = modelDigest(b.c.ModelPath); err != nil {
			return err
		}
	}
	state := uint64(0)
	if b.template != nil {
		state = b.template.Fingerprint()
	}
	window := int(yzma.ModelNSWA(b.model))
	full := window > 0 && b.c.SWAFull // keeps positions the other form does not send
	parts := []string{
		"arch " + b.info.Arch,
		fmt.Sprintf("chunk %d", b.c.Chunk),
		fmt.Sprintf("kv %s", b.c.KVType),
		fmt.Sprintf("window %d", window),
		fmt.Sprintf("swa_full %v", full),
		fmt.Sprintf("state %016x", state),
		fmt.Sprintf("model digest %016x", digest),
	}
	var hyper []string
	for i := range yzma.ModelMetaCount(b.model) {
		key, ok := yzma.ModelMetaKeyByIndex(b.model, i)
		if ok && strings.HasPrefix(key, b.info.Arch+".") {
			value, _ := yzma.ModelMetaValStrByIndex(b.model, i)
			hyper = append(hyper, key+"="+value)
		}
	}
	slices.Sort(hyper)
	b.info.Describe = fmt.Sprintf("%s, %d layers, %d heads, %d KV heads", strings.Join(parts, ", "),
		yzma.ModelNLayer(b.model), yzma.ModelNHead(b.model), yzma.ModelNHeadKV(b.model))
	b.info.Layout = kv.Fingerprint(xxh3.HashString(strings.Join(append(parts, hyper...), "\n")))
	return nil
}

// splitName is how files of a model in parts are named.
var splitName = regexp.MustCompile(`^(.*)-00001-of-(\d{5})\.gguf$`)

// modelFiles returns the files of a model, in order.
func modelFiles(path string) []string {
	m := splitName.FindStringSubmatch(path)
	if m == nil {
		return []string{path}
	}
	n := 0
	fmt.Sscanf(m[2], "%d", &n)
	var out []string
	for i := 1; i <= n; i++ {
		out = append(out, fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], i, m[2]))
	}
	return out
}

// modelDigest hashes a model's files, or finds the hash in the cache.
func modelDigest(path string) (uint64, error) {
	var sum []byte
	for _, f := range modelFiles(path) {
		d, err := fileDigest(f)
		if err != nil {
			return 0, fmt.Errorf("digest of the model: %w", err)
		}
		sum = binary.LittleEndian.AppendUint64(sum, d)
	}
	return xxh3.Hash(sum), nil
}

// cachedDigest is one entry of the digest cache, keyed by what changes when a
// file changes.
type cachedDigest struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime_ns"`
	Inode  uint64 `json:"inode"`
	Digest uint64 `json:"digest"`
}

func fileDigest(path string) (uint64, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(abs)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	key := cachedDigest{Path: abs, Size: st.Size(), MTime: st.ModTime().UnixNano(), Inode: inode(st)}
	store := digestFile(key)
	if d, ok := readDigest(store, key); ok {
		return d, nil
	}
	h := xxh3.New()
	if _, err := io.CopyBuffer(h, f, make([]byte, 1<<20)); err != nil {
		return 0, err
	}
	key.Digest = h.Sum64()
	_ = writeDigest(store, key) // without a cache it is only slower next time
	return key.Digest, nil
}

// digestFile returns where the digest of a file is kept; "" without a cache.
func digestFile(key cachedDigest) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tandem", "digests", fmt.Sprintf("%016x.json", xxh3.HashString(key.Path)))
}

func readDigest(file string, key cachedDigest) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	var got cachedDigest
	if json.Unmarshal(b, &got) != nil {
		return 0, false
	}
	key.Digest = got.Digest
	return got.Digest, got == key
}

func writeDigest(file string, key cachedDigest) error {
	if file == "" {
		return errors.New("no cache directory")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(key)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "digest-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
