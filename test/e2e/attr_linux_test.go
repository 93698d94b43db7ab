package e2e

import "syscall"

// attributes has the kernel kill a child when this process dies, however it does.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
