package testmodel

import "fmt"

// Kind names one of the models this package can make.
type Kind int

const (
	// LlamaGQA has plain attention with 4 query and 2 KV heads: architecture
	// llama, 4 layers, one KV cache.
	LlamaGQA Kind = iota + 1

	// Gemma3 has a sliding window of 512 tokens in five layers of six:
	// architecture gemma3, 12 layers, 2 global and 10 windowed, two KV caches.
	Gemma3

	// MLA keeps one low-rank row per token instead of K and V: architecture
	// deepseek2, 4 dense layers, one KV cache without V.
	MLA

	// Recurrent keeps one state per sequence that every token changes, and nothing
	// by position: architecture mamba, 4 layers, no KV cache.
	Recurrent

	// Hybrid has both: architecture lfm2, 4 layers, a short convolution with
	// recurrent state in every other one, attention with a KV cache in the rest.
	Hybrid
)

// Kinds returns every kind whose whole state is KV by position: what can be cut,
// forked anywhere and handed over in chunks.
func Kinds() []Kind { return []Kind{LlamaGQA, Gemma3, MLA} }

// Stateful returns every kind with state that has no positions.
func Stateful() []Kind { return []Kind{Recurrent, Hybrid} }

// All returns every kind there is.
func All() []Kind { return append(Kinds(), Stateful()...) }

// String returns the name used in file names and in subtests.
func (k Kind) String() string {
	switch k {
	case LlamaGQA:
		return "llama-gqa"
	case Gemma3:
		return "gemma3"
	case MLA:
		return "mla"
	case Recurrent:
		return "recurrent"
	case Hybrid:
		return "hybrid"
	}
	return fmt.Sprintf("kind-%d", int(k))
}

// recipe is all that a model's bytes follow from. The cache key is a hash of it,
// so a change of any field, or of format, makes a new file.
type recipe struct {
	Format int // raised when the code that turns a recipe into bytes changes
	Arch   string
	Seed   uint64

	Context int // tokens
	Window  int // tokens, 0 for none
	Layers  int
	Embd    int
	Heads   int
	KVHeads int
	HeadDim int
	FF      int

	// Of MLA: HeadDim is a head's query and key, Rot of it rotated.
	QRank  int `json:",omitempty"`
	KVRank int `json:",omitempty"`
	Rot    int `json:",omitempty"`

	// Of state without positions: the inner width and its low rank, numbers of
	// state per channel, taps of the convolution.
	Inner  int `json:",omitempty"`
	DtRank int `json:",omitempty"`
	State  int `json:",omitempty"`
	Taps   int `json:",omitempty"`

	// Standard deviations of the products, which set the model's character.
	Score  float64 // attention scores: the larger, the sharper
	Mix    float64 // what a layer adds to the residual stream, relative to the embedding's 1
	Logits float64 // logits
}

// recipeOf returns the recipe of a kind, or an error for one that does not exist.
func recipeOf(k Kind) (recipe, error) {
	switch k {
	case LlamaGQA:
		return recipe{
			Format: 1, Arch: "llama", Seed: 0x7a6e64656d01,
			Context: 4096, Layers: 4, Embd: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 512,
			Score: 2, Mix: 0.7, Logits: 3,
		}, nil
	case Gemma3:
		return recipe{
			Format: 1, Arch: "gemma3", Seed: 0x7a6e64656d02,
			Context: 4096, Window: 512, Layers: 12, Embd: 192, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 384,
			Score: 2, Mix: 0.5, Logits: 3,
		}, nil
	case MLA:
		return recipe{
			Format: 1, Arch: "deepseek2", Seed: 0x7a6e64656d03,
			Context: 4096, Layers: 4, Embd: 256, Heads: 4, KVHeads: 1, HeadDim: 64, FF: 512,
			QRank: 96, KVRank: 64, Rot: 32,
			Score: 2, Mix: 0.7, Logits: 3,
		}, nil
	case Recurrent:
		return recipe{
			Format: 1, Arch: "mamba", Seed: 0x7a6e64656d04,
			Context: 4096, Layers: 4, Embd: 128,
			Inner: 256, DtRank: 8, State: 16, Taps: 4,
			Mix: 0.7, Logits: 3,
		}, nil
	case Hybrid:
		return recipe{
			Format: 1, Arch: "lfm2", Seed: 0x7a6e64656d05,
			Context: 4096, Layers: 4, Embd: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 512, Taps: 3,
			Score: 2, Mix: 0.7, Logits: 3,
		}, nil
	}
	return recipe{}, fmt.Errorf("testmodel: there is no %v", k)
}
