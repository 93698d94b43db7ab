package gguf

import "fmt"

// Magic is the first four bytes of every GGUF file.
const Magic = "GGUF"

// Version is the file format version that Write produces. ReadInfo accepts 2 and
// 3, which share one layout.
const Version = 3

// Alignment is where tensor data starts and each tensor begins, in bytes, unless
// the file's own general.alignment says otherwise.
const Alignment = 32

// Type is ggml's number for the element type of a tensor.
type Type uint32

// The element types that Write can produce.
const (
	F32 Type = 0
)

// block describes a ggml type: bytes for each run of elems elements.
type block struct {
	name  string
	elems uint64
	bytes uint64
}

// blocks holds the storage size of the types ggml defines. A type that is not
// here can still be loaded by the engine; ReadInfo then cannot tell whether the
// last tensor of that type is whole.
var blocks = map[Type]block{
	0:  {"F32", 1, 4},
	1:  {"F16", 1, 2},
	2:  {"Q4_0", 32, 18},
	3:  {"Q4_1", 32, 20},
	6:  {"Q5_0", 32, 22},
	7:  {"Q5_1", 32, 24},
	8:  {"Q8_0", 32, 34},
	9:  {"Q8_1", 32, 36},
	10: {"Q2_K", 256, 84},
	11: {"Q3_K", 256, 110},
	12: {"Q4_K", 256, 144},
	13: {"Q5_K", 256, 176},
	14: {"Q6_K", 256, 210},
	15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66},
	17: {"IQ2_XS", 256, 74},
	18: {"IQ3_XXS", 256, 98},
	19: {"IQ1_S", 256, 50},
	20: {"IQ4_NL", 32, 18},
	21: {"IQ3_S", 256, 110},
	22: {"IQ2_S", 256, 82},
	23: {"IQ4_XS", 256, 136},
	24: {"I8", 1, 1},
	25: {"I16", 1, 2},
	26: {"I32", 1, 4},
	27: {"I64", 1, 8},
	28: {"F64", 1, 8},
	29: {"IQ1_M", 256, 56},
	30: {"BF16", 1, 2},
	34: {"TQ1_0", 256, 54},
	35: {"TQ2_0", 256, 66},
	39: {"MXFP4", 32, 17},
}

// String returns ggml's name for the type, or its number.
func (t Type) String() string {
	if b, ok := blocks[t]; ok {
		return b.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// kind is GGUF's number for the type of a metadata value.
type kind uint32

const (
	kindUint8 kind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// width returns the bytes of a fixed-size value, or 0 for strings, arrays and
// kinds that do not exist.
func (k kind) width() int {
	switch k {
	case kindUint8, kindInt8, kindBool:
		return 1
	case kindUint16, kindInt16:
		return 2
	case kindUint32, kindInt32, kindFloat32:
		return 4
	case kindUint64, kindInt64, kindFloat64:
		return 8
	}
	return 0
}
