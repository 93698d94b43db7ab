// Package decode is the worker that takes a prompt's KV over and generates. It
// wires a room.Book (the rules), an engine, an arena of import buffers, a
// transfer.Sink (the bytes) and the sessions with prefill workers; it decides
// only admission. Requests without a room are computed here from the start:
// that is what tandem serve does, and what a decode worker does with a request
// that came to it alone.
//
// The queues are SGLang's: prealloc (no KV cells yet), transfer (cells held, the
// hand-over goes on), waiting (KV complete, the last prompt token not yet
// evaluated), running (generating).
package decode
