package llama

import (
	"errors"
	"fmt"

	yzma "github.com/hybridgroup/yzma/pkg/llama"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// Backend is one loaded model and its context.
type Backend struct {
	c        Config
	info     engine.Info
	tok      *tokenizer
	template *kv.Template // nil: KV cannot be handed over
	selfTest SelfTest

	model yzma.Model
	ctx   yzma.Context
	mem   yzma.Memory
	batch yzma.Batch
	rows  int // capacity of batch
	seqs  int // sequences the engine may use: live and cached ones
	abort int // index into aborts

	lengths []int32 // positions [0, lengths[s]) of sequence s are in the cache
	pins    []int32 // cells of the window cache that sequence s shares since its fork
	window  window
	asked   []bool // rows of the last batch that have logits
	taken   int    // rows of the last batch that lengths counts
	seqOf   [1]yzma.SeqId

	tokens    *yzma.TokenDataArray // what grammars mask; made by the first
	tokenData []yzma.TokenData
}

// Sequence numbers of the spares, after those that the engine may use.
func (b *Backend) exportSpare() yzma.SeqId { return yzma.SeqId(b.seqs) }
func (b *Backend) importSpare() yzma.SeqId { return yzma.SeqId(b.seqs + 1) }

var _ engine.Backend = (*Backend)(nil)

// Info returns what the model is.
func (b *Backend) Info() engine.Info { return b.info }

// Tokenizer returns the model's tokenizer, safe for concurrent use.
func (b *Backend) Tokenizer() engine.Tokenizer { return b.tok }

// SelfTest returns what the self-test at load found.
func (b *Backend) SelfTest() SelfTest { return b.selfTest }

// ErrInterrupted is Compute's answer after Interrupt.
var ErrInterrupted = errors.New("compute interrupted")

// Compute evaluates the rows in one library call.
func (b *Backend) Compute(rows []engine.Row) error {
	b.taken = 0
	err := b.compute(rows)
	if err != nil { // what is not computed is nobody's position
		for i := b.taken - 1; i >= 0; i-- {
			b.Truncate(rows[i].Seq, rows[i].Pos)
		}
	}
	return err
}

func (b *Backend) compute(rows []engine.Row) error {
	flag := &aborts[b.abort].raised
	flag.Store(false)
	b.asked = b.asked[:0]
	if len(rows) == 0 || len(rows) > b.rows {
		return fmt.Errorf("%d rows in one call, of at most %d", len(rows), b.rows)
	}
	b.batch.Clear()
	for _, r := range rows {
		if !b.has(r.Seq) {
			return fmt.Errorf("sequence %d of %d", r.Seq, b.seqs)
		}
		// The library would accept a gap or a token it does not have, silently or
		// with an exception that ends the process.
		if r.Pos != b.lengths[r.Seq] {
			return fmt.Errorf("sequence %d: position %d does not follow %d", r.Seq, r.Pos, b.lengths[r.Seq]-1)
		}
		if r.Token < 0 || int(r.Token) >= b.info.Vocab {
			return fmt.Errorf("sequence %d: token %d of %d", r.Seq, r.Token, b.info.Vocab)
		}
		b.lengths[r.Seq]++
		b.taken++
		b.seqOf[0] = yzma.SeqId(r.Seq)
		if err := b.batch.Add(yzma.Token(r.Token), yzma.Pos(r.Pos), b.seqOf[:], r.Logits); err != nil {
			return err
		}
	}
	code, err := yzma.Decode(b.ctx, b.batch)
	if err == nil {
		switch {
		case code == 0:
			for _, r := range rows {
				b.asked = append(b.asked, r.Logits)
			}
			return nil
		case flag.Load():
			err = ErrInterrupted
		case code == 1:
			err = fmt.Errorf("no free KV cells for %d rows", len(rows))
		default:
			err = fmt.Errorf("llama_decode of %d rows returned %d: %s", len(rows), code, heard.firstError())
		}
	}
	heard.drain(b.c.Log)
	return err
}

// Logits returns the logits of the i-th row of the last Compute.
func (b *Backend) Logits(i int) []float32 {
	if i < 0 || i >= len(b.asked) || !b.asked[i] {
		return nil
	}
	l, err := yzma.GetLogitsIth(b.ctx, int32(i), b.info.Vocab)
	if err != nil {
		return nil
	}
	return l
}

// Truncate drops positions from p0 on. The library says no where the state is not
// that of any position but the last: then nothing is left.
func (b *Backend) Truncate(s id.SeqID, p0 int32) {
	if !b.has(s) || p0 < 0 || p0 >= b.lengths[s] {
		return
	}
	if ok, err := yzma.MemorySeqRm(b.mem, yzma.SeqId(s), yzma.Pos(p0), -1); err != nil || !ok {
		b.Drop(s)
		return
	}
	b.lengths[s] = p0
}

// Drop drops a sequence.
func (b *Backend) Drop(s id.SeqID) {
	if !b.has(s) || b.lengths[s] == 0 {
		return
	}
	yzma.MemorySeqRm(b.mem, yzma.SeqId(s), -1, -1)
	b.lengths[s], b.pins[s] = 0, 0
}

// Interrupt asks a running Compute to return early; CPU backends do.
func (b *Backend) Interrupt() { aborts[b.abort].raised.Store(true) }

// Close frees the context and the model. The libraries stay loaded.
func (b *Backend) Close() error {
	if b.ctx != 0 {
		yzma.Free(b.ctx)
		yzma.BatchFree(b.batch)
		b.ctx = 0
	}
	if b.model != 0 {
		yzma.ModelFree(b.model)
		b.model = 0
	}
	if b.abort >= 0 {
		aborts[b.abort].taken.Store(false)
		b.abort = -1
	}
	heard.drain(b.c.Log)
	return nil
}
