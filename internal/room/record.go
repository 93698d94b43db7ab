package room

import "github.com/tandem-llm/tandem/internal/id"

// Leg is the router's half of a room: what the HTTP request said.
type Leg struct {
	Room     id.Room
	RID      id.RID
	Tokens   int32  // n: the prompt's tokens
	Digest   Digest // of their ids
	Have     int32  // tokens of the prompt that decode holds already; set at its admission, told by READY
	Window   int64  // decode: bytes of its import buffer
	Deadline Mono   // when the request must have ended
}

// Record is what a Book knows of one room. Ended rooms keep only what answering
// a late message takes: they are their own tombstones.
type Record struct {
	Leg
	State State
	Peer  id.Incarnation // the other worker, from READY on
	Gen   id.Generation  // from READY on
	Cause *Cause         // why it Failed; nil otherwise
	Since Mono           // when it came into State
	Freed bool           // terminal, and no memory of it is in use

	// prefill: what was exported, published and acknowledged
	exported    []exported // every exported chunk, from position 0 on
	discarded   int        // chunks below Have, given back unpublished
	published   uint32     // chunks handed to the data plane, from position Have on
	settled     uint32     // chunks acknowledged
	outstanding int64      // bytes published and not acknowledged
	complete    bool       // the last chunk was exported
	moved       Mono       // last progress of the transfer

	// decode: what was taken and imported
	taken    uint32
	imported uint32
	held     int64 // bytes taken and not imported

	sum uint64 // FoldSum over published (prefill) or imported (decode) chunks

	ready   Message // prefill: the READY that came, for the leg to be compared with
	stopped bool    // StopWork was sent
	timerAt Mono    // the timer that counts; 0 if none
}

// exported is one chunk that the engine wrote.
type exported struct {
	bytes int
	sum   uint64
}

// Chunks returns how many chunks of c tokens the hand-over has: at least one, see span.
func (r *Record) Chunks(c int32) uint32 {
	left := r.Tokens - 1 - r.Have
	if left <= 0 {
		return 1
	}
	return uint32((left + c - 1) / c)
}

// Outstanding returns the bytes published and not acknowledged (prefill).
func (r *Record) Outstanding() int64 { return r.outstanding }

// entomb keeps only what a tombstone needs.
func (r *Record) entomb() {
	r.exported = nil
	r.outstanding, r.held = 0, 0
}

// span returns what chunk seq of the hand-over must be: positions [p0, p1), and
// whether it is the last. A hand-over has at least one chunk: when nothing has to
// travel, an empty one proves that the prefill leg is there and has the same tokens.
func (r *Record) span(seq uint32, c int32) (p0, p1 int32, last bool) {
	end := max(r.Tokens-1, r.Have)
	p0 = min(r.Have+int32(seq)*c, end)
	p1 = min(p0+c, end)
	return p0, p1, p1 == end
}
