//go:build unix

package main

import "syscall"

// descriptors is how many files a process may have open, 0 if that is not known.
// A Go program raises its own limit to this when it starts.
func descriptors() uint64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return r.Max
}
