//go:build !linux

package ffiguard

// Present returns true: on this platform libffi comes with the binary.
func Present() bool { return true }
