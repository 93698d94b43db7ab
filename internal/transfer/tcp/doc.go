// Package tcp moves chunks over one TCP connection per pair of workers. The
// sink dials and presents a ticket; the source pushes chunks under the credit
// that the sink grants; the sink reads exactly a chunk's bytes into a lease of
// its own, or discards exactly as many. The whole wire is in wire.go.
//
// Each connection has one reader and one writer, joined by Run. Bytes that are
// no frame close that connection alone. The caller owes Run to every Source and
// Sink it makes, and handlers that return at once.
package tcp
