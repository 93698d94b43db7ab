//go:build !linux

package router

import "syscall"

// userTimeout: TCP_USER_TIMEOUT is Linux's; elsewhere keep-alive and the
// deadline must do.
func userTimeout(_, _ string, _ syscall.RawConn) error { return nil }
