package gguf

import (
	"fmt"
	"math"
)

// fill sets the fields of info from the metadata map of a decoder. A value of
// an unexpected type is treated as absent.
func (info *Info) fill(meta map[string]any) {
	str := func(key string) string { s, _ := meta[key].(string); return s }
	num := func(key string) int { n, _ := number(meta[key]); return int(n) }
	info.Architecture = str("general.architecture")
	info.Name = str("general.name")
	info.SizeLabel = str("general.size_label")
	info.Finetune = str("general.finetune")
	info.License = str("general.license")
	info.FileType = num("general.file_type")
	arch := info.Architecture + "."
	info.ContextLength = num(arch + "context_length")
	info.SlidingWindow = num(arch + "attention.sliding_window")
	info.Layers = num(arch + "block_count")
	info.Embedding = num(arch + "embedding_length")
	info.TokenizerModel = str("tokenizer.ggml.model")
	if n, ok := meta["tokenizer.ggml.tokens"].(arrayLen); ok && n <= math.MaxInt32 {
		info.VocabSize = int(n)
	}
	info.HasTokenizer = info.TokenizerModel != "" && info.VocabSize > 0
	info.ChatTemplate = str("tokenizer.chat_template")
}

// number returns v as an integer if it is one that fits 31 bits.
func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, v >= 0 && v <= math.MaxInt32
	case uint64:
		return int64(v), v <= math.MaxInt32
	}
	return 0, false
}

// CheckServable returns nil if the model can be served as text in, text out:
// it names its architecture and brings its tokenizer. Otherwise the error says
// what is missing. The engine decides whether it knows the architecture.
func (info Info) CheckServable() error {
	switch {
	case info.Architecture == "":
		return fmt.Errorf("%w: it names no architecture (general.architecture)", ErrDamaged)
	case info.Tensors == 0:
		return fmt.Errorf("%w: it holds no tensors, only metadata", ErrDamaged)
	case !info.HasTokenizer:
		return fmt.Errorf("it holds no tokenizer (tokenizer.ggml.model and tokens): it is not a language model, or a projector or adapter of one")
	}
	return nil
}
