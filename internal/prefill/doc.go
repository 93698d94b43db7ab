// Package prefill is the worker that computes prompts' KV and hands it over. It
// wires a room.Book (the rules), an engine (the computing), an arena (the
// memory) and a transfer.Source (the bytes); it decides only admission: which
// room gets KV cells and its arena share next.
//
// The queues are SGLang's: bootstrap (legs without READY), waiting (READY, no
// resources yet), inflight (READY and resources: computing or transferring).
// Rooms with READY are admitted first. A room without one may be admitted early,
// while fewer than Config.Unpaired are: it computes inside its arena share, and
// loses it again if READY does not come, or if a room that has it needs the memory.
package prefill
