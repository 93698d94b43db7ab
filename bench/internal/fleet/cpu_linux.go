package fleet

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxCPUs is what a unix.CPUSet holds.
const maxCPUs = 1024

func allowed() (out []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for c := range maxCPUs {
		if set.IsSet(c) {
			out = append(out, c)
		}
	}
	return out
}

func setOf(cpus []int) *unix.CPUSet {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return &set
}

// onCPUs calls start on a thread that has only these CPUs, as a child that it
// starts then does from its first instruction on; nil: as they are.
func onCPUs(cpus []int, start func() error) error {
	if cpus == nil {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, setOf(cpus)); err != nil {
		return fmt.Errorf("cannot use %s: %w", Words(cpus), err)
	}
	err := start()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// PinSelf moves this process to the CPUs: every thread it has, which those that
// come inherit. Processes that are pinned when they start are not concerned.
func PinSelf(cpus []int) error {
	if cpus == nil {
		return nil
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, setOf(cpus)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// diesWithUs makes the kernel end a child when the thread that started it ends.
// Go ends no thread of its own before the process.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

var kernelFile = regexp.MustCompile(`[^/\s]*ggml-cpu[^/\s]*`)

// Kernels returns the library with the CPU kernels that a process has loaded;
// "" if that cannot be told.
func (p *process) kernels() string {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	if err != nil {
		return ""
	}
	return string(kernelFile.Find(maps))
}
