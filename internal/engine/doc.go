// Package engine owns sequences of tokens in a KV cache: it extends them,
// exports and imports the KV of a token range, samples, and drops them. One
// goroutine, the step loop, owns the Backend and makes every call to it.
//
// A caller admits a Request and gets a Seq; what happens to the sequence comes
// back through its Handler, exactly one Done last. Callers owe the loop handlers
// that return at once. The loop never does I/O, never waits for a peer, and
// never calls the library while it holds a lock.
package engine
