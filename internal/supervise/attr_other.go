//go:build !unix

package supervise

import "syscall"

// attributes returns nothing special: process groups are a thing of unix.
func attributes() *syscall.SysProcAttr { return nil }
