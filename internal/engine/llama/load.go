package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf"
)

// New loads the libraries, the model and a context, and tests that KV can be
// handed over. It takes as long as the model is large. Callers owe it one Close.
// What no other try can mend is an *engine.ConfigError.
func New(c Config) (b *Backend, err error) {
	c = c.withDefaults()
	k, err := kvType(c.KVType)
	if err != nil {
		return nil, err
	}
	file, err := checkFile(c.ModelPath)
	if err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = strings.TrimSuffix(filepath.Base(c.ModelPath), ".gguf")
	}
	if err := loadLibrary(c.LibDir); err != nil {
		return nil, err
	}
	b = &Backend{c: c, abort: -1, seqs: c.Slots}
	defer func() {
		if err != nil {
			b.Close()
			b = nil
		}
	}()
	if b.abort, err = takeAbort(); err != nil {
		return b, err
	}
	if err := b.loadModel(); err != nil {
		return b, err
	}
	if why := b.stateful(); why != "" && c.MustHandOver { // said before a large file is hashed
		return b, &engine.NoHandOverError{Info: engine.Info{Model: c.Name, Path: c.ModelPath, Arch: file.Architecture, HandOver: why}}
	}
	if err := b.loadContext(k); err != nil {
		return b, err
	}
	b.describe(file)
	if err := b.learn(); err != nil {
		return b, err
	}
	if b.info.HandOver != "" && c.MustHandOver {
		return b, &engine.NoHandOverError{Info: b.info}
	}
	if err := b.fingerprint(); err != nil {
		return b, err
	}
	heard.drain(c.Log)
	return b, nil
}

// checkFile names what is wrong with a file before the library sees it.
func checkFile(path string) (gguf.Info, error) {
	if path == "" {
		return gguf.Info{}, engine.Misconfigured("no model file given")
	}
	info, err := gguf.ReadInfo(path)
	if errors.Is(err, os.ErrNotExist) {
		return info, fmt.Errorf("model file %s does not exist", path)
	}
	if errors.Is(err, gguf.ErrNotGGUF) || errors.Is(err, gguf.ErrDamaged) {
		return info, engine.Misconfigured("model file: %w", err)
	}
	if err != nil {
		return info, fmt.Errorf("model file: %w", err)
	}
	if err := info.CheckServable(); err != nil {
		return info, engine.Misconfigured("model file %s: %w", path, err)
	}
	return info, nil
}

func (b *Backend) loadModel() error {
	heard.firstError()
	p := yzma.ModelDefaultParams()
	p.NGpuLayers = int32(b.c.GPULayers)
	if b.c.GPULayers < 0 {
		p.NGpuLayers = 1 << 20
	}
	if b.c.GPULayers == 0 {
		p.SetCPUOnly()
	}
	var err error
	if b.model, err = yzma.ModelLoadFromFile(b.c.ModelPath, p); err != nil {
		b.model = 0
		err = fmt.Errorf("llama.cpp cannot load %s: %s", b.c.ModelPath, heard.firstError())
		if strings.Contains(err.Error(), "unknown model architecture") {
			return &engine.ConfigError{Err: err}
		}
		return err
	}
	switch {
	case !yzma.ModelHasDecoder(b.model) || yzma.ModelHasEncoder(b.model):
		return engine.Misconfigured("%s is an encoder model: only decoder-only models generate from a KV cache", b.c.ModelPath)
	case yzma.ModelIsDiffusion(b.model):
		return engine.Misconfigured("%s is a diffusion model: it has no KV cache to generate from", b.c.ModelPath)
	}
	b.tok, err = newTokenizer(yzma.ModelGetVocab(b.model))
	if err != nil {
		return fmt.Errorf("%s: %w", b.c.ModelPath, err)
	}
	return nil
}

func (b *Backend) loadContext(k yzma.GGMLType) error {
	if w := int(yzma.ModelNSWA(b.model)); w > 0 && !b.c.SWAFull {
		b.c.Chunk = belowWindow(b.c.Chunk, w)
	}
	b.rows = engine.DefaultMaxStep(b.c.Chunk, b.c.Slots)
	limit := int(yzma.MaxParallelSequences()) - spares
	if b.c.Slots > limit {
		return engine.Misconfigured("%d slots: llama.cpp keeps at most %d", b.c.Slots, limit)
	}
	if b.c.CacheSeqs == 0 {
		b.c.CacheSeqs = b.c.Slots
		if yzma.ModelNSWA(b.model) > 0 && !b.c.SWAFull || b.stateful() != "" {
			b.c.CacheSeqs = min(b.c.Slots, dearCacheSeqs)
		}
	}
	b.seqs = min(b.c.Slots+max(b.c.CacheSeqs, 0), limit)
	b.lengths, b.pins = make([]int32, b.seqs), make([]int32, b.seqs)
	if err := b.enoughMemory(); err != nil {
		return err
	}
	p := yzma.ContextDefaultParams()
	// The library ends the process when a batch has more rows than its context has
	// cells, also rows that repeat positions of an earlier call. More cells than were
	// asked for are in nobody's ledger.
	p.NCtx = uint32(max(b.c.Context, b.rows))
	p.NBatch, p.NUbatch = uint32(b.rows), uint32(b.rows)
	p.NSeqMax = uint32(b.seqs + spares)
	// One row of logits per sequence, and those of one prompt whose log
	// probabilities are asked for, are all that the step loop ever wants.
	p.NOutputsMax = uint32(b.seqs + spares + engine.MaxScoredRows)
	p.NOutputsMaxPerSeq = engine.MaxScoredRows
	p.NThreads, p.NThreadsBatch = int32(b.c.Threads), int32(b.c.Threads)
	p.FlashAttentionType = yzma.FlashAttentionTypeEnabled // V is stored by row only with it
	p.TypeK, p.TypeV = k, k
	p.KVUnified = 1
	p.SwaFull = 0
	if b.c.SWAFull {
		p.SwaFull = 1
	}
	p.NoPerf = 1
	p.AbortCallback, p.AbortCallbackData = library.abort, uintptr(b.abort)
	heard.firstError()
	var err error
	if b.ctx, err = yzma.InitFromModel(b.model, p); err != nil {
		b.ctx = 0
		return fmt.Errorf("llama.cpp cannot make a context of %d cells (%s): %s", b.c.Context, b.c.KVType, heard.firstError())
	}
	if b.mem, err = yzma.GetMemory(b.ctx); err != nil || b.mem == 0 {
		return fmt.Errorf("%s has no KV cache", b.c.ModelPath)
	}
	b.batch = yzma.BatchInit(int32(b.rows), 0, 1)
	return nil
}

func (b *Backend) describe(file gguf.Info) {
	build := "llama.cpp " + Version + " cpu"
	if b.c.GPULayers != 0 && yzma.SupportsGpuOffload() {
		build = "llama.cpp " + Version + " gpu"
	}
	b.learnWindow()
	vocab := yzma.ModelGetVocab(b.model)
	text := func(t yzma.Token) string {
		if t < 0 {
			return ""
		}
		return yzma.VocabGetText(vocab, t)
	}
	b.info = engine.Info{
		Model: b.c.Name, Path: b.c.ModelPath, Arch: file.Architecture, Build: build,
		Cells: min(b.c.Context, int(yzma.NCtx(b.ctx))), Slots: b.c.Slots, Seqs: b.seqs, Window: b.infoWindow(), Vocab: len(b.tok.ends),
		Train: int(yzma.ModelNCtxTrain(b.model)), Chunk: b.c.Chunk,
		Template: yzma.ModelChatTemplate(b.model, ""),
		BOS:      text(yzma.VocabBOS(vocab)), EOS: text(yzma.VocabEOS(vocab)), AddBOS: b.tok.addBOS,
	}
	b.info.HandOver = b.stateful()
}

// stateful says why the model's state cannot be handed over in chunks, if it has
// some that belongs to no position; else "".
func (b *Backend) stateful() string {
	switch {
	case yzma.ModelIsRecurrent(b.model):
		return "a recurrent model's state is not stored by position, so it cannot be handed over in chunks"
	case yzma.ModelIsHybrid(b.model):
		return "a hybrid model keeps recurrent state that is not stored by position, so it cannot be handed over in chunks"
	}
	return ""
}
