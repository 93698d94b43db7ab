package sim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// Config says how large, how fast and how healthy the simulated engine is.
type Config struct {
	Name            string        // the model name served; default "sim"
	Cells           int           // KV cells; default 8192
	Slots           int           // sequences at once; default 16
	CacheSeqs       int           // sequence ids beside them for cached ones; default Slots, negative: none
	Chunk           int           // C; default 256
	Window          int           // as engine.Info.Window
	Vocab           int           // default and least 4096, at most 10272 (words have four digits)
	KVBytesPerToken int           // bytes of KV per token; default 64, least 32
	TokenTime       time.Duration // compute time per row; default 0
	CallTime        time.Duration // compute time per call; default 0
	ImportTime      time.Duration // time of one Import; default 0
	ExportTime      time.Duration // time of one Export; default 0
	MeanLength      int           // mean tokens until end of text; 0: only max_tokens ends
	MaxRows         int           // rows one call takes; default engine.DefaultMaxStep

	// Interruptible lets Interrupt end a running Compute, as llama.cpp's CPU
	// backends do. Otherwise a call runs to its end, as on a GPU.
	Interruptible bool

	// Sleep waits inside a library call. Default time.Sleep, which testing/synctest
	// understands. With Interruptible a timer is used instead.
	Sleep func(time.Duration)

	// Hook, if set, is called at the start of every library call, on the engine
	// goroutine. It may block (a frozen library), and an error fails the call.
	Hook func(Op) error
}

// Op is one library call, as Hook sees it.
type Op struct {
	Kind   string   // "compute", "export", "import", "fork", "save" or "load"
	Seq    id.SeqID // of all but compute
	P0, P1 int32    // of all but compute
	Rows   int      // of compute
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.Name == "" {
		c.Name = "sim"
	}
	def(&c.Cells, 8192)
	def(&c.Slots, 16)
	if c.CacheSeqs == 0 {
		c.CacheSeqs = c.Slots
	}
	c.CacheSeqs = max(c.CacheSeqs, 0)
	def(&c.Chunk, 256)
	def(&c.KVBytesPerToken, 64)
	c.KVBytesPerToken = max(c.KVBytesPerToken, 2*minHalf)
	c.Vocab = min(max(c.Vocab, 4096), firstWord+10000)
	def(&c.MaxRows, engine.DefaultMaxStep(c.Chunk, c.Slots))
	if c.Sleep == nil {
		c.Sleep = time.Sleep
	}
	return c
}

// Backend is the simulated engine.
type Backend struct {
	c        Config
	info     engine.Info
	template *kv.Template
	row      int // bytes of KV per position, K and V
	seqs     []sequence
	cells    []cell
	free     []int32     // cells that hold nothing
	logits   [][]float32 // by row, nil where none were asked for
	spare    [][]float32
	scratch  []byte

	mu        sync.Mutex
	interrupt chan struct{} // of the running Compute; nil when none may be interrupted
	frozen    chan struct{} // closed by thaw; nil when not frozen
}

// sequence is one sequence's KV.
type sequence struct {
	at      []int32 // cells of positions 0, 1, 2, …
	checked int     // positions whose rows are known to be in order
	corrupt bool
}

// cell holds one position's row, for as many sequences as share it.
type cell struct {
	row  []byte
	seqs int
}

var _ engine.Backend = (*Backend)(nil)

// New returns a simulated engine.
func New(c Config) (*Backend, error) {
	c = c.withDefaults()
	k := c.KVBytesPerToken / 2
	v := c.KVBytesPerToken - k
	t := &kv.Template{Magic: 0x73696d01, Sections: []kv.Section{{
		Streams: 1, K: []kv.Tensor{{Type: 1, Row: uint64(k)}}, V: []kv.Tensor{{Type: 1, Row: uint64(v)}}}}}
	if err := t.Seal(); err != nil {
		return nil, err
	}
	b := &Backend{c: c, template: t, row: k + v, seqs: make([]sequence, c.Slots+c.CacheSeqs), cells: make([]cell, c.Cells), scratch: make([]byte, k+v)}
	for i := c.Cells - 1; i >= 0; i-- {
		b.free = append(b.free, int32(i))
	}
	b.info = engine.Info{
		Model: c.Name, Arch: "sim", Build: "sim 1", Cells: c.Cells, Slots: c.Slots, Seqs: len(b.seqs), Window: c.Window, Vocab: c.Vocab, Train: c.Cells, Chunk: c.Chunk,
		Layout:   kv.Fingerprint(t.Fingerprint() ^ uint64(c.Vocab) ^ uint64(c.Chunk)<<32),
		Describe: fmt.Sprintf("sim: vocabulary %d, chunk %d, %d bytes of KV per token", c.Vocab, c.Chunk, c.KVBytesPerToken),
		Template: Template, BOS: controls[0], EOS: controls[1], AddBOS: true,
	}
	return b, nil
}

// Info returns what the simulated engine is.
func (b *Backend) Info() engine.Info { return b.info }

// Tokenizer returns the simulator's tokenizer.
func (b *Backend) Tokenizer() engine.Tokenizer { return tokenizer{words: b.c.Vocab - firstWord} }

// ChunkBytes returns the exact size of an exported chunk.
func (b *Backend) ChunkBytes(tokens int) int { return b.template.Size(tokens) }

// Used returns the KV cells that hold something, for tests. Call it only while
// no step runs.
func (b *Backend) Used() int { return b.c.Cells - len(b.free) }

// Freeze makes every library call from now on block until thaw is called.
func (b *Backend) Freeze() (thaw func()) {
	ch := make(chan struct{})
	b.mu.Lock()
	b.frozen = ch
	b.mu.Unlock()
	return sync.OnceFunc(func() {
		b.mu.Lock()
		if b.frozen == ch {
			b.frozen = nil
		}
		b.mu.Unlock()
		close(ch)
	})
}

// ErrInterrupted is Compute's answer after Interrupt.
var ErrInterrupted = errors.New("compute interrupted")

// Interrupt ends a running Compute if the engine is Interruptible.
func (b *Backend) Interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interrupt != nil {
		close(b.interrupt)
		b.interrupt = nil
	}
}

// call begins a library call: hook, freeze, then the time it takes.
func (b *Backend) call(op Op, d time.Duration) error {
	b.mu.Lock()
	frozen := b.frozen
	var stop chan struct{}
	if b.c.Interruptible && op.Kind == "compute" {
		stop = make(chan struct{})
		b.interrupt = stop
	}
	b.mu.Unlock()
	if b.c.Hook != nil {
		if err := b.c.Hook(op); err != nil {
			return err
		}
	}
	if frozen != nil {
		<-frozen
	}
	if stop == nil {
		if d > 0 {
			b.c.Sleep(d)
		}
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
		return ErrInterrupted
	case <-timer.C:
	}
	b.mu.Lock()
	b.interrupt = nil
	b.mu.Unlock()
	return nil
}

// Close forgets everything.
func (b *Backend) Close() error {
	b.seqs, b.cells, b.free, b.logits, b.spare = nil, nil, nil, nil, nil
	return nil
}
