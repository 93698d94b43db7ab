package testmodel

import "github.com/tandem-llm/tandem/internal/gguf"

// mla replaces what the metadata says of heads: in the cache there is one row of
// KVRank values, and Rot that are rotated, for all heads. All layers are dense.
func (b *builder) mla(meta []gguf.Meta) []gguf.Meta {
	key := func(k string) string { return b.Arch + "." + k }
	for i := range meta {
		switch meta[i].Key {
		case key("attention.key_length"):
			meta[i].Value = uint32(b.KVRank + b.Rot)
		case key("attention.value_length"):
			meta[i].Value = uint32(b.KVRank)
		}
	}
	return append(meta,
		gguf.Meta{Key: key("attention.q_lora_rank"), Value: uint32(b.QRank)},
		gguf.Meta{Key: key("attention.kv_lora_rank"), Value: uint32(b.KVRank)},
		gguf.Meta{Key: key("attention.key_length_mla"), Value: uint32(b.HeadDim)},
		gguf.Meta{Key: key("attention.value_length_mla"), Value: uint32(b.HeadDim)},
		gguf.Meta{Key: key("leading_dense_block_count"), Value: uint32(b.Layers)},
		gguf.Meta{Key: key("expert_feed_forward_length"), Value: uint32(b.FF)},
		gguf.Meta{Key: key("expert_shared_count"), Value: uint32(0)},
		gguf.Meta{Key: key("expert_weights_scale"), Value: float32(1)},
	)
}

// mlaLayer appends what makes queries, keys and values: down to a rank and up again.
func (b *builder) mlaLayer(name func(string) string, qk, v float64) {
	b.matrix(name("attn_q_a"), b.Embd, b.QRank, 1)
	b.norm(name("attn_q_a_norm"), b.QRank, 1)
	b.matrix(name("attn_q_b"), b.QRank, b.Heads*b.HeadDim, qk)
	b.matrix(name("attn_kv_a_mqa"), b.Embd, b.KVRank+b.Rot, qk)
	b.norm(name("attn_kv_a_norm"), b.KVRank, 1)
	b.cube(name("attn_k_b"), b.HeadDim-b.Rot, b.KVRank, b.Heads, 1)
	b.cube(name("attn_v_b"), b.KVRank, b.HeadDim, b.Heads, v)
}
