package testmodel

import (
	"fmt"
	"math"

	"github.com/tandem-llm/tandem/internal/gguf"
)

// recurs says which layers of the hybrid have recurrent state: every other one,
// the first of all among them.
func recurs(layer int) bool { return layer%2 == 0 }

// lfm2Meta says by layer how many KV heads there are: none means a convolution.
func (b *builder) lfm2Meta(meta []gguf.Meta) []gguf.Meta {
	heads := make([]int32, b.Layers)
	for l := range heads {
		if !recurs(l) {
			heads[l] = int32(b.KVHeads)
		}
	}
	key := func(k string) string { return b.Arch + "." + k }
	for i := range meta {
		if meta[i].Key == key("attention.head_count_kv") {
			meta[i].Value = heads
		}
	}
	return append(meta,
		gguf.Meta{Key: key("shortconv.l_cache"), Value: uint32(b.Taps)},
		gguf.Meta{Key: key("rope.freq_base"), Value: float32(1e6)},
	)
}

// lfm2 lists every tensor of a hybrid model.
func (b *builder) lfm2() {
	b.matrix("token_embd.weight", b.Embd, len(b.vocab.tokens), math.Sqrt(float64(b.Embd)))
	for l := range b.Layers {
		name, _ := layerNames(l)
		b.norm(name("attn_norm"), b.Embd, 1)
		if recurs(l) {
			b.matrix(name("shortconv.in_proj"), b.Embd, 3*b.Embd, 1)
			b.matrix(name("shortconv.conv"), b.Taps, b.Embd, 1)
			b.matrix(name("shortconv.out_proj"), b.Embd, b.Embd, b.Mix)
		} else {
			b.matrix(name("attn_q"), b.Embd, b.Heads*b.HeadDim, 1)
			b.matrix(name("attn_k"), b.Embd, b.KVHeads*b.HeadDim, 1)
			b.matrix(name("attn_v"), b.Embd, b.KVHeads*b.HeadDim, 2)
			b.norm(name("attn_q_norm"), b.HeadDim, math.Sqrt(b.Score))
			b.norm(name("attn_k_norm"), b.HeadDim, math.Sqrt(b.Score))
			b.matrix(name("attn_output"), b.Heads*b.HeadDim, b.Embd, b.Mix)
		}
		b.norm(name("ffn_norm"), b.Embd, 1)
		b.matrix(name("ffn_gate"), b.Embd, b.FF, 1.2)
		b.matrix(name("ffn_up"), b.Embd, b.FF, 1.2)
		b.matrix(name("ffn_down"), b.FF, b.Embd, b.Mix)
	}
	b.norm("token_embd_norm.weight", b.Embd, 1) // this architecture's name for the last one
	b.output()
}

// layerNames returns how tensors of a layer are called: with the usual ending, and
// as given.
func layerNames(l int) (weight, bare func(string) string) {
	bare = func(s string) string { return fmt.Sprintf("blk.%d.%s", l, s) }
	return func(s string) string { return bare(s) + ".weight" }, bare
}

// constant appends n values that follow from their index. They are rounded far
// above the precision of the mathematics library, which may differ by machine.
func (b *builder) constant(name string, n int, value func(i int) float64, dims ...int) {
	if len(dims) == 0 {
		dims = []int{n}
	}
	b.out = append(b.out, gguf.Tensor{Name: name, Dims: dims, Fill: func(dst []float32) {
		for i := range dst {
			dst[i] = float32(math.Round(value(i)*1e4) / 1e4)
		}
	}})
}
