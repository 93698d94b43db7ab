package testmodel

import (
	"fmt"
	"math"

	"github.com/tandem-llm/tandem/internal/gguf"
)

// build turns a recipe into a file: metadata, vocabulary and tensors. Weights are
// computed while the file is written.
func build(r recipe) gguf.File {
	v := newVocab()
	var meta []gguf.Meta
	if r.Arch == "gemma3" {
		meta = gemmaVocab(v)
	} else {
		meta = llamaVocab(v)
	}
	b := &builder{recipe: r, vocab: v}
	switch r.Arch {
	case "mamba":
		b.mamba()
	case "lfm2":
		b.lfm2()
	default:
		b.tensors()
	}
	return gguf.File{Meta: append(b.hyper(), meta...), Tensors: b.out}
}

// llamaVocab fills v the way Llama 2's tokenizer is laid out.
func llamaVocab(v *vocab) []gguf.Meta {
	unk := v.add("<unk>", tokenUnknown, 0)
	bos := v.add("<s>", tokenControl, 0)
	eos := v.add("</s>", tokenControl, 0)
	v.addBytes()
	v.add("<|im_start|>", tokenControl, 0)
	eot := v.add("<|im_end|>", tokenControl, 0)
	v.addPieces()
	return append(v.meta("llama"),
		gguf.Meta{Key: "tokenizer.ggml.unknown_token_id", Value: uint32(unk)},
		gguf.Meta{Key: "tokenizer.ggml.bos_token_id", Value: uint32(bos)},
		gguf.Meta{Key: "tokenizer.ggml.eos_token_id", Value: uint32(eos)},
		gguf.Meta{Key: "tokenizer.ggml.eot_token_id", Value: uint32(eot)},
		gguf.Meta{Key: "tokenizer.ggml.add_bos_token", Value: true},
		gguf.Meta{Key: "tokenizer.ggml.add_eos_token", Value: false},
		gguf.Meta{Key: "tokenizer.ggml.add_space_prefix", Value: true},
	)
}

// gemmaVocab fills v the way Gemma's tokenizer is laid out.
func gemmaVocab(v *vocab) []gguf.Meta {
	pad := v.add("<pad>", tokenControl, 0)
	eos := v.add("<eos>", tokenControl, 0)
	bos := v.add("<bos>", tokenControl, 0)
	unk := v.add("<unk>", tokenUnknown, 0)
	v.add("<start_of_turn>", tokenControl, 0)
	eot := v.add("<end_of_turn>", tokenControl, 0)
	v.addBytes()
	v.addPieces()
	return append(v.meta("gemma3"),
		gguf.Meta{Key: "tokenizer.ggml.padding_token_id", Value: uint32(pad)},
		gguf.Meta{Key: "tokenizer.ggml.unknown_token_id", Value: uint32(unk)},
		gguf.Meta{Key: "tokenizer.ggml.bos_token_id", Value: uint32(bos)},
		gguf.Meta{Key: "tokenizer.ggml.eos_token_id", Value: uint32(eos)},
		gguf.Meta{Key: "tokenizer.ggml.eot_token_id", Value: uint32(eot)},
		gguf.Meta{Key: "tokenizer.ggml.add_bos_token", Value: true},
		gguf.Meta{Key: "tokenizer.ggml.add_eos_token", Value: false},
		gguf.Meta{Key: "tokenizer.ggml.add_space_prefix", Value: false},
	)
}

// meta returns the vocabulary as metadata.
func (v *vocab) meta(arch string) []gguf.Meta {
	return []gguf.Meta{
		{Key: "tokenizer.ggml.model", Value: "llama"},
		{Key: "tokenizer.ggml.pre", Value: "default"},
		{Key: "tokenizer.ggml.tokens", Value: v.tokens},
		{Key: "tokenizer.ggml.scores", Value: v.scores},
		{Key: "tokenizer.ggml.token_type", Value: v.types},
		{Key: "tokenizer.chat_template", Value: chatTemplate(arch)},
	}
}

// builder collects the tensors of one model.
type builder struct {
	recipe
	vocab *vocab
	out   []gguf.Tensor
}

// hyper returns the hyperparameters as metadata.
func (b *builder) hyper() []gguf.Meta {
	key := func(k string) string { return b.Arch + "." + k }
	meta := []gguf.Meta{
		{Key: "general.architecture", Value: b.Arch},
		{Key: "general.type", Value: "model"},
		{Key: "general.name", Value: "Tandem test model " + b.Arch},
		{Key: "general.file_type", Value: uint32(0)},
		{Key: key("context_length"), Value: uint32(b.Context)},
		{Key: key("embedding_length"), Value: uint32(b.Embd)},
		{Key: key("block_count"), Value: uint32(b.Layers)},
		{Key: key("feed_forward_length"), Value: uint32(b.FF)},
		{Key: key("attention.head_count"), Value: uint32(b.Heads)},
		{Key: key("attention.head_count_kv"), Value: uint32(b.KVHeads)},
		{Key: key("attention.key_length"), Value: uint32(b.HeadDim)},
		{Key: key("attention.value_length"), Value: uint32(b.HeadDim)},
		{Key: key("attention.layer_norm_rms_epsilon"), Value: float32(1e-6)},
		{Key: key("vocab_size"), Value: uint32(len(b.vocab.tokens))},
	}
	switch {
	case b.Arch == "mamba":
		return b.mambaMeta(meta)
	case b.Arch == "lfm2":
		return b.lfm2Meta(meta)
	case b.KVRank > 0:
		return append(b.mla(meta),
			gguf.Meta{Key: key("rope.dimension_count"), Value: uint32(b.Rot)},
			gguf.Meta{Key: key("rope.freq_base"), Value: float32(10000)})
	case b.Window == 0:
		return append(meta,
			gguf.Meta{Key: key("rope.dimension_count"), Value: uint32(b.HeadDim)},
			gguf.Meta{Key: key("rope.freq_base"), Value: float32(10000)})
	}
	return append(meta,
		gguf.Meta{Key: key("attention.sliding_window"), Value: uint32(b.Window)},
		gguf.Meta{Key: key("rope.freq_base"), Value: float32(1e6)})
}

// tensors lists every tensor. The stream starts at a root mean square of 1 and
// each half layer adds about Mix to it; every matrix reads a normalised input.
func (b *builder) tensors() {
	gemma := b.Arch == "gemma3"
	q, kv := b.Heads*b.HeadDim, b.KVHeads*b.HeadDim
	// Attention averages values over several positions, and the gated product of
	// the feed-forward is smaller than its factors: both are made up for.
	qk, v, ff, down := math.Sqrt(b.Score), 2.0, 1.2, b.Mix
	embedding := 1.0
	if gemma {
		// The engine multiplies embeddings by sqrt(Embd); Q and K are normalised
		// per head and then weighted; each half layer is normalised before it is
		// added, and weighted by Mix.
		embedding, qk, v, ff, down = 1/math.Sqrt(float64(b.Embd)), 1, 1, 1, 1
	}
	b.matrix("token_embd.weight", b.Embd, len(b.vocab.tokens), embedding*math.Sqrt(float64(b.Embd)))
	for l := range b.Layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", l, s) }
		b.norm(name("attn_norm"), b.Embd, 1)
		if b.KVRank > 0 {
			b.mlaLayer(name, qk, v)
		} else {
			b.matrix(name("attn_q"), b.Embd, q, qk)
			b.matrix(name("attn_k"), b.Embd, kv, qk)
			b.matrix(name("attn_v"), b.Embd, kv, v)
		}
		b.matrix(name("attn_output"), q, b.Embd, down)
		if gemma {
			b.norm(name("attn_q_norm"), b.HeadDim, math.Sqrt(b.Score))
			b.norm(name("attn_k_norm"), b.HeadDim, math.Sqrt(b.Score))
			b.norm(name("post_attention_norm"), b.Embd, b.Mix)
			b.norm(name("post_ffw_norm"), b.Embd, b.Mix)
		}
		b.norm(name("ffn_norm"), b.Embd, 1)
		b.matrix(name("ffn_gate"), b.Embd, b.FF, ff)
		b.matrix(name("ffn_up"), b.Embd, b.FF, ff)
		b.matrix(name("ffn_down"), b.FF, b.Embd, down)
	}
	b.norm("output_norm.weight", b.Embd, 1)
	b.output()
}

// matrix appends a weight matrix that maps in values of deviation 1 to out values
// of the given deviation.
func (b *builder) matrix(name string, in, out int, deviation float64) {
	b.cube(name, in, out, 0, deviation)
}

// cube is matrix for heads matrices in one tensor; 0: for one without that axis.
func (b *builder) cube(name string, in, out, heads int, deviation float64) {
	dims := []int{in, out}
	if heads > 0 {
		dims = append(dims, heads)
	}
	seed := b.Seed
	b.out = append(b.out, gguf.Tensor{Name: name, Dims: dims, Fill: func(dst []float32) {
		newRandom(seed, name).fill(dst, deviation/math.Sqrt(float64(in)))
	}})
}

// norm appends the weights of a normalisation: around mean, by a tenth.
func (b *builder) norm(name string, n int, mean float64) {
	seed := b.Seed
	b.out = append(b.out, gguf.Tensor{Name: name, Dims: []int{n}, Fill: func(dst []float32) {
		newRandom(seed, name).fill(dst, mean/10)
		for i := range dst {
			dst[i] += float32(mean)
		}
	}})
}

// output appends the output matrix, apart from the embedding so that the last
// token is not simply repeated, with rows of zeros for what must never be chosen.
func (b *builder) output() {
	const name = "output.weight"
	types, width := b.vocab.types, b.Embd
	seed, deviation := b.Seed, b.Logits/math.Sqrt(float64(b.Embd))
	b.out = append(b.out, gguf.Tensor{Name: name, Dims: []int{width, len(types)}, Fill: func(dst []float32) {
		newRandom(seed, name).fill(dst, deviation)
		for id, t := range types {
			if t == tokenControl || t == tokenUnknown {
				clear(dst[id*width : (id+1)*width])
			}
		}
	}})
}
