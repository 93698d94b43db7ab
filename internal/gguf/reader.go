package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
)

// What a reader accepts. A file beyond these is refused as damaged: no real
// model comes near them.
const (
	maxEntries  = 1 << 16 // metadata entries, and tensors, each: the largest models have a few thousand
	maxKey      = 1 << 16 // bytes of a key or of a tensor's name: the format's own limit
	maxString   = 1 << 26 // bytes of one string value: templates and merged vocabularies stay below
	maxDims     = 8       // dimensions of a tensor: ggml has 4
	maxNesting  = 4       // arrays inside arrays
	keepString  = 1 << 20 // bytes of a string value that Info keeps
	maxAlign    = 1 << 20 // bytes: general.alignment
	readerBytes = 1 << 16 // bytes read at once
)

// The three ways a file fails to be a usable model. Errors of ReadInfo wrap one
// of them, or are the operating system's.
var (
	ErrNotGGUF   = errors.New("not a GGUF file")
	ErrTruncated = errors.New("GGUF file is truncated")
	ErrDamaged   = errors.New("GGUF file is damaged")
)

// Info is what the metadata of a file says about the model in it. A field whose
// key is absent is the zero value.
type Info struct {
	FormatVersion int    // of GGUF: 2 or 3
	Architecture  string // general.architecture: "llama", "gemma3", ...
	Name          string // general.name
	SizeLabel     string // general.size_label: "270M"
	Finetune      string // general.finetune: "it", "Instruct"; usually empty for a base model
	License       string // general.license
	FileType      int    // general.file_type: llama_ftype; 0 is all F32, 15 is mostly Q4_K_M

	ContextLength int // tokens the model was trained for
	SlidingWindow int // tokens of the attention window, 0 if there is none
	Layers        int // block_count
	Embedding     int // embedding_length

	HasTokenizer   bool   // tokenizer.ggml.model and tokens are present
	TokenizerModel string // "llama" (SPM), "gpt2" (BPE), ...
	VocabSize      int    // entries of tokenizer.ggml.tokens
	ChatTemplate   string // tokenizer.chat_template; empty if the model has none

	Tensors int   // number of tensors
	Size    int64 // bytes of the file on disk
	Need    int64 // bytes the file must have for its tensors to be whole
}

// ReadInfo reads the metadata of the GGUF file at path and checks that the file
// is long enough for the tensors it lists. It reads the head of the file only.
// The error names path and wraps ErrNotGGUF, ErrTruncated, ErrDamaged, or the
// operating system's error.
func ReadInfo(path string) (Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	if st.IsDir() {
		return Info{}, fmt.Errorf("%s is a directory, not a GGUF file: %w", path, ErrNotGGUF)
	}
	info, err := Read(f, st.Size())
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", path, err)
	}
	return info, nil
}

// Read is ReadInfo for a stream that starts at the first byte of a file of the
// given size in bytes. It reads no tensor data.
func Read(r io.Reader, size int64) (Info, error) {
	d := &decoder{r: bufio.NewReaderSize(io.LimitReader(r, size), readerBytes), size: size}
	info := Info{Size: size}
	if err := d.file(&info); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return Info{}, fmt.Errorf("%w: it ends after %d bytes, inside its metadata; fetch it again", ErrTruncated, size)
		}
		return Info{}, err
	}
	return info, nil
}

// decoder reads little-endian values and knows where it is.
type decoder struct {
	r    *bufio.Reader
	n    int64 // bytes consumed
	size int64 // bytes of the file
	buf  [8]byte
}

func (d *decoder) file(info *Info) error {
	magic := make([]byte, 4)
	if _, err := io.ReadFull(d.r, magic); err != nil || string(magic) != Magic {
		return fmt.Errorf("%w: it starts with %q, want %q", ErrNotGGUF, magic, Magic)
	}
	d.n = 4
	version, err := d.u32()
	if err != nil {
		return err
	}
	if version != 2 && version != 3 {
		if bits.ReverseBytes32(version) <= 3 {
			return fmt.Errorf("%w: it is big-endian, which this machine cannot load", ErrDamaged)
		}
		return fmt.Errorf("%w: format version %d, want 2 or 3", ErrDamaged, version)
	}
	info.FormatVersion = int(version)
	tensors, err := d.count("tensors", maxEntries)
	if err != nil {
		return err
	}
	entries, err := d.count("metadata entries", maxEntries)
	if err != nil {
		return err
	}
	meta := map[string]any{}
	for range entries {
		key, err := d.str(maxKey, maxKey)
		if err != nil {
			return err
		}
		k, err := d.u32()
		if err != nil {
			return err
		}
		v, err := d.value(kind(k), 0)
		if err != nil {
			return fmt.Errorf("metadata %q: %w", key, err)
		}
		meta[key] = v
	}
	info.fill(meta)
	info.Tensors = int(tensors)
	alignment := int64(Alignment)
	if a, ok := number(meta["general.alignment"]); ok {
		if a < 1 || a > maxAlign || a&(a-1) != 0 {
			return fmt.Errorf("%w: general.alignment is %d", ErrDamaged, a)
		}
		alignment = a
	}
	var end uint64
	for range tensors {
		e, err := d.tensor()
		if err != nil {
			return err
		}
		end = max(end, e)
	}
	start := (d.n + alignment - 1) / alignment * alignment
	if end > math.MaxInt64/2 {
		return fmt.Errorf("%w: its tensors would need %d bytes", ErrDamaged, end)
	}
	info.Need = start + int64(end)
	if tensors == 0 {
		info.Need = d.n
	}
	if d.size < info.Need {
		return fmt.Errorf("%w: it has %d bytes and its tensors need %d; fetch it again", ErrTruncated, d.size, info.Need)
	}
	return nil
}

// tensor reads one tensor's description and returns where its data ends,
// counted from the start of the data.
func (d *decoder) tensor() (uint64, error) {
	name, err := d.str(maxKey, maxKey)
	if err != nil {
		return 0, err
	}
	dims, err := d.u32()
	if err != nil {
		return 0, err
	}
	if dims > maxDims {
		return 0, fmt.Errorf("%w: tensor %q has %d dimensions", ErrDamaged, name, dims)
	}
	elems, row := uint64(1), uint64(1)
	for i := range dims {
		n, err := d.u64()
		if err != nil {
			return 0, err
		}
		if i == 0 {
			row = n
		}
		hi, lo := bits.Mul64(elems, n)
		if hi != 0 {
			return 0, fmt.Errorf("%w: tensor %q is too large", ErrDamaged, name)
		}
		elems = lo
	}
	t, err := d.u32()
	if err != nil {
		return 0, err
	}
	offset, err := d.u64()
	if err != nil {
		return 0, err
	}
	b, ok := blocks[Type(t)]
	if !ok {
		return offset, nil
	}
	if row%b.elems != 0 {
		return 0, fmt.Errorf("%w: tensor %q has rows of %d, not a multiple of %d as %s needs", ErrDamaged, name, row, b.elems, b.name)
	}
	hi, bytes := bits.Mul64(elems/b.elems, b.bytes)
	end, carry := bits.Add64(offset, bytes, 0)
	if hi != 0 || carry != 0 {
		return 0, fmt.Errorf("%w: tensor %q is too large", ErrDamaged, name)
	}
	return end, nil
}

// arrayLen stands for an array in the metadata map: only its length is kept.
type arrayLen uint64

// value reads one metadata value. Integers come back as int64 or uint64, floats
// as float64, strings as string (cut at keepString), arrays as arrayLen.
func (d *decoder) value(k kind, depth int) (any, error) {
	switch k {
	case kindString:
		return d.str(maxString, keepString)
	case kindArray:
		if depth >= maxNesting {
			return nil, fmt.Errorf("%w: arrays nested deeper than %d", ErrDamaged, maxNesting)
		}
		ek, err := d.u32()
		if err != nil {
			return nil, err
		}
		n, err := d.u64()
		if err != nil {
			return nil, err
		}
		return arrayLen(n), d.skipArray(kind(ek), n, depth)
	}
	w := k.width()
	if w == 0 {
		return nil, fmt.Errorf("%w: value of unknown type %d", ErrDamaged, k)
	}
	clear(d.buf[:])
	if _, err := io.ReadFull(d.r, d.buf[:w]); err != nil {
		return nil, err
	}
	d.n += int64(w)
	v := binary.LittleEndian.Uint64(d.buf[:])
	switch k {
	case kindInt8:
		return int64(int8(v)), nil
	case kindInt16:
		return int64(int16(v)), nil
	case kindInt32:
		return int64(int32(v)), nil
	case kindInt64:
		return int64(v), nil
	case kindFloat32:
		return float64(math.Float32frombits(uint32(v))), nil
	case kindFloat64:
		return math.Float64frombits(v), nil
	case kindBool:
		return v != 0, nil
	}
	return v, nil
}

func (d *decoder) skipArray(k kind, n uint64, depth int) error {
	if w := k.width(); w != 0 {
		hi, bytes := bits.Mul64(n, uint64(w))
		if hi != 0 {
			return fmt.Errorf("%w: array of %d values", ErrDamaged, n)
		}
		return d.skip(bytes)
	}
	// Each element takes at least 8 bytes, so that the loop ends with the file.
	for range n {
		var err error
		if k == kindString {
			_, err = d.str(maxString, 0)
		} else {
			_, err = d.value(k, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) skip(n uint64) error {
	if n > uint64(d.size-d.n) {
		return io.ErrUnexpectedEOF
	}
	m, err := io.CopyN(io.Discard, d.r, int64(n))
	d.n += m
	return err
}

// str reads a string of at most limit bytes and returns its first keep bytes.
func (d *decoder) str(limit, keep uint64) (string, error) {
	n, err := d.u64()
	if err != nil {
		return "", err
	}
	if n > uint64(d.size-d.n) {
		return "", io.ErrUnexpectedEOF
	}
	if n > limit {
		return "", fmt.Errorf("%w: a string of %d bytes", ErrDamaged, n)
	}
	p := make([]byte, min(n, keep))
	if _, err := io.ReadFull(d.r, p); err != nil {
		return "", err
	}
	d.n += int64(len(p))
	return string(p), d.skip(n - uint64(len(p)))
}

func (d *decoder) count(what string, limit uint64) (uint64, error) {
	n, err := d.u64()
	if err != nil {
		return 0, err
	}
	if n > limit {
		return 0, fmt.Errorf("%w: it claims %d %s", ErrDamaged, n, what)
	}
	return n, nil
}

func (d *decoder) u32() (uint32, error) {
	_, err := io.ReadFull(d.r, d.buf[:4])
	d.n += 4
	return binary.LittleEndian.Uint32(d.buf[:4]), err
}

func (d *decoder) u64() (uint64, error) {
	_, err := io.ReadFull(d.r, d.buf[:8])
	d.n += 8
	return binary.LittleEndian.Uint64(d.buf[:8]), err
}
