//go:build !linux

package fleet

import "syscall"

// Elsewhere nothing is pinned, and the reports say so.

func allowed() []int { return nil }

func onCPUs(_ []int, start func() error) error { return start() }

// PinSelf does nothing here.
func PinSelf([]int) error { return nil }

func diesWithUs() *syscall.SysProcAttr { return nil }

func (p *process) kernels() string { return "" }
