//go:build unix

package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// others measures how much of the machine went to programs that are not part of a
// test, as control measures its own lag before it calls a peer silent. It knows
// nothing, and takes the machine for ours alone, where there is no /proc.
type others struct {
	ours []int // process ids
	busy time.Duration
}

func watchOthers(ps []*process) *others {
	o := &others{ours: []int{os.Getpid()}}
	for _, p := range ps {
		o.ours = append(o.ours, p.cmd.Process.Pid)
	}
	o.busy = o.now()
	return o
}

// took is the time in which the whole machine could have done what others did on
// it since.
func (o *others) took() time.Duration {
	return max(0, o.now()-o.busy) / time.Duration(runtime.NumCPU())
}

// now is the processor time that others have used since the machine's start.
func (o *others) now() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal
	if len(f) < 9 {
		return 0
	}
	busy := ticks(f[1]) + ticks(f[2]) + ticks(f[3]) + ticks(f[6]) + ticks(f[7]) + ticks(f[8])
	for _, pid := range o.ours {
		busy -= usedBy(pid)
	}
	return busy
}

// usedBy is the processor time of one process.
func usedBy(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // its name may hold anything
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	return ticks(f[11]) + ticks(f[12]) // utime, stime
}

// ticks reads a number of hundredths of a second, as Linux writes them.
func ticks(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * 10 * time.Millisecond
}
