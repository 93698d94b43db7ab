//go:build !race

package room

// raced says that the race detector makes everything ten times slower.
const raced = false
