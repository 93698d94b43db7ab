package engine

import (
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
)

// Token is an index into the model's vocabulary.
type Token = int32

// Info is what a loaded model and its context are. It never changes after load.
type Info struct {
	Model    string         // the name served, e.g. "gemma3-270m"
	Path     string         // where the weights came from; "" for the simulator
	Arch     string         // GGUF general.architecture; "sim" for the simulator
	Build    string         // backend and library version, e.g. "llama.cpp v0.5.0 cpu"
	Cells    int            // KV cells in total, shared by all sequences (n_ctx)
	Slots    int            // sequences that may live at once, spares not counted
	Seqs     int            // sequence ids, from 0: Slots, and those for cached sequences; 0 means Slots
	Window   int            // 0: a sequence can be forked or cut at any position; W > 0: only where W positions before it are left; −1: only at its end
	Vocab    int            // number of tokens in the vocabulary
	Train    int            // context length the model was trained for; 0 if unknown
	Chunk    int            // C: hand-over chunks have their borders at multiples of it
	Layout   kv.Fingerprint // must be equal on both sides of a hand-over
	Describe string         // the layout in words, for the error that names both values
	Template string         // jinja chat template from the model, "" if it has none
	BOS, EOS string         // text of these tokens, for the template; "" if none
	AddBOS   bool           // plain text (not a rendered template) gets BOS in front
	HandOver string         // "" if KV can be handed over in chunks, else why not
}

// Row is one token to evaluate in a Batch.
type Row struct {
	Seq    id.SeqID
	Token  Token
	Pos    int32
	Logits bool // keep this row's logits; read them with Backend.Logits
}

// Backend computes. The step loop is its only caller, one call at a time; only
// Info, Tokenizer and Interrupt are safe from other goroutines.
type Backend interface {
	Info() Info
	Tokenizer() Tokenizer

	// Compute evaluates the rows in one library call and extends their
	// sequences. After an error no row is in the cache. What the sequences had
	// before is still there after Interrupt, unless Info.Window is negative; after
	// any other error it may not be trusted, and the caller drops them.
	Compute(rows []Row) error

	// Logits returns the logits of rows[i] of the last Compute, of length
	// Info.Vocab, owned by the backend and valid until the next Compute.
	Logits(i int) []float32

	// ChunkBytes returns the exact length of the blob that Export writes for
	// this many tokens.
	ChunkBytes(tokens int) int

	// Export writes the KV of positions [p0, p1) of seq to dst, which must be
	// memory of an Arena and at least ChunkBytes(p1-p0) long, and returns the
	// length written. The sequence is unchanged.
	Export(seq id.SeqID, p0, p1 int32, dst []byte) (int, error)

	// Import verifies that src is, header for header, a blob this backend
	// itself would export for [p0, p1) (see kv/verify.go) and appends it to
	// seq, which must end at p0. src must be memory of an Arena. On error seq is
	// unchanged.
	Import(seq id.SeqID, p0, p1 int32, src []byte) error

	// Fork makes dst, which is empty, share positions [0, p1) of src: no cell is
	// copied or taken. CanFork says whether dst could be continued there, and
	// whether the backend has what that takes.
	CanFork(src id.SeqID, p1 int32) bool
	Fork(src, dst id.SeqID, p1 int32) error

	// Kept returns the first position of seq that every layer still has: above 0
	// only with a sliding window. From Kept + Window on it can be cut and continued.
	Kept(seq id.SeqID) int32

	// Truncate drops positions ≥ p0 of seq; Drop drops all of it. Both free the
	// cells at once. With a negative Info.Window there is no state of p0 to go back
	// to: Truncate then drops all of seq that has positions from p0 on.
	Truncate(seq id.SeqID, p0 int32)
	Drop(seq id.SeqID)

	// Interrupt asks a running Compute to return early, if the backend can, with
	// an error. Safe from any goroutine.
	Interrupt()

	// Close frees the library's memory. No call may be running or follow.
	Close() error
}

// Tokenizer turns text into tokens and back. Safe for concurrent use.
type Tokenizer interface {
	// Encode tokenizes text. With special, control tokens written in the text
	// (as a rendered chat template has them) become those tokens. With bos, the
	// model's BOS is put in front if the model wants one. Any bytes are
	// accepted, NUL and invalid UTF-8 included.
	Encode(text string, special, bos bool) ([]Token, error)

	// Piece returns the bytes a token adds to the text, nil for control tokens.
	// A character may be spread over several tokens.
	Piece(t Token) []byte

	// EndOfGeneration says whether a model that emits t has finished.
	EndOfGeneration(t Token) bool
}
