package supervise

import "syscall"

// attributes gives a child a process group of its own, and has the kernel kill it
// when the thread that started it ends; Run holds on to that thread.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
