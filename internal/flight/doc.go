// Package flight remembers what happened to each request on one process: every
// transition of its room with its time, and the one ending with its cause. A
// bounded ring of ended records stays behind, so that an operator can ask what
// happened to a request after it is gone.
package flight
