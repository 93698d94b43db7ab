package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// File is a GGUF file to be written: metadata and tensors in the order given.
type File struct {
	Meta    []Meta
	Tensors []Tensor
}

// Meta is one metadata entry. Value is one of: bool, int32, uint32, uint64,
// float32, string, []string, []int32, []float32.
type Meta struct {
	Key   string
	Value any
}

// Tensor is one F32 tensor. Dims are in ggml's order: Dims[0] is the length of a
// row, the dimension that is contiguous in memory.
type Tensor struct {
	Name string
	Dims []int

	// Fill writes the tensor's values into dst, whose length is the product of
	// Dims. It must set every element: dst is reused between tensors. It must
	// not keep dst.
	Fill func(dst []float32)
}

// Len returns the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Size returns the number of bytes that Write produces for f.
func (f File) Size() (int64, error) {
	var n counter
	if err := f.writeHead(&n); err != nil {
		return 0, err
	}
	total := int64(n)
	for _, t := range f.Tensors {
		total = align(total) + int64(t.Len())*4
	}
	return align(total), nil
}

// Write writes f to w. The same f gives the same bytes on every machine as long
// as its Fill functions do. It returns the first error of w, or an error that
// names the entry it cannot express.
func (f File) Write(w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<20)
	out := &offsetWriter{w: b}
	if err := f.writeHead(out); err != nil {
		return err
	}
	if err := out.pad(); err != nil {
		return err
	}
	var values []float32
	var raw []byte
	for _, t := range f.Tensors {
		n := t.Len()
		if cap(values) < n {
			values, raw = make([]float32, n), make([]byte, 4*n)
		}
		values, raw = values[:n], raw[:4*n]
		t.Fill(values)
		for i, v := range values {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		if _, err := out.Write(raw); err != nil {
			return err
		}
		if err := out.pad(); err != nil {
			return err
		}
	}
	return b.Flush()
}

// writeHead writes all that comes before the tensor data, without padding.
func (f File) writeHead(w io.Writer) error {
	e := &encoder{w: w}
	e.raw([]byte(Magic))
	e.u32(Version)
	e.u64(uint64(len(f.Tensors)))
	e.u64(uint64(len(f.Meta)))
	for _, m := range f.Meta {
		e.str(m.Key)
		if err := e.value(m.Value); err != nil {
			return fmt.Errorf("gguf: metadata %q: %w", m.Key, err)
		}
	}
	var offset int64
	for _, t := range f.Tensors {
		e.str(t.Name)
		e.u32(uint32(len(t.Dims)))
		for _, d := range t.Dims {
			e.u64(uint64(d))
		}
		e.u32(uint32(F32))
		e.u64(uint64(offset))
		offset = align(offset + int64(t.Len())*4)
	}
	return e.err
}

// encoder writes little-endian values and keeps the first error.
type encoder struct {
	w   io.Writer
	buf [8]byte
	err error
}

func (e *encoder) raw(p []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(p)
	}
}

func (e *encoder) u32(v uint32) {
	binary.LittleEndian.PutUint32(e.buf[:4], v)
	e.raw(e.buf[:4])
}

func (e *encoder) u64(v uint64) {
	binary.LittleEndian.PutUint64(e.buf[:8], v)
	e.raw(e.buf[:8])
}

func (e *encoder) str(s string) {
	e.u64(uint64(len(s)))
	e.raw([]byte(s))
}

func (e *encoder) kind(k kind) { e.u32(uint32(k)) }

func (e *encoder) array(k kind, n int) {
	e.kind(kindArray)
	e.kind(k)
	e.u64(uint64(n))
}

func (e *encoder) value(v any) error {
	switch v := v.(type) {
	case bool:
		e.kind(kindBool)
		if v {
			e.raw([]byte{1})
		} else {
			e.raw([]byte{0})
		}
	case int32:
		e.kind(kindInt32)
		e.u32(uint32(v))
	case uint32:
		e.kind(kindUint32)
		e.u32(v)
	case uint64:
		e.kind(kindUint64)
		e.u64(v)
	case float32:
		e.kind(kindFloat32)
		e.u32(math.Float32bits(v))
	case string:
		e.kind(kindString)
		e.str(v)
	case []string:
		e.array(kindString, len(v))
		for _, s := range v {
			e.str(s)
		}
	case []int32:
		e.array(kindInt32, len(v))
		for _, i := range v {
			e.u32(uint32(i))
		}
	case []float32:
		e.array(kindFloat32, len(v))
		for _, x := range v {
			e.u32(math.Float32bits(x))
		}
	default:
		return fmt.Errorf("a value of type %T cannot be written", v)
	}
	return e.err
}

// offsetWriter counts what it passes on, so that it can pad to Alignment.
type offsetWriter struct {
	w io.Writer
	n int64
}

func (o *offsetWriter) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	o.n += int64(n)
	return n, err
}

func (o *offsetWriter) pad() error {
	_, err := o.Write(make([]byte, align(o.n)-o.n))
	return err
}

// counter is a writer that only counts.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// align rounds n up to a multiple of Alignment.
func align(n int64) int64 { return (n + Alignment - 1) / Alignment * Alignment }
