//go:build unix && !linux

package supervise

import "syscall"

// attributes gives a child a process group of its own. There is no way here to have
// it die with this process if that is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
