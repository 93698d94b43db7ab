package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// CPUs reads a list as "0,2-3". "" is every CPU this process may use, "none" no
// pinning at all, which is nil.
func CPUs(list string) ([]int, error) {
	switch list {
	case "":
		return allowed(), nil
	case "none":
		return nil, nil
	}
	var out []int
	for _, part := range strings.Split(list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > 4095 {
			return nil, fmt.Errorf("CPU list %q: write it as 0,2-3", list)
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out, nil
}

// Words says which CPUs they are.
func Words(cpus []int) string {
	if len(cpus) == 0 {
		return "any CPU"
	}
	var s []string
	for _, c := range cpus {
		s = append(s, strconv.Itoa(c))
	}
	if len(s) == 1 {
		return "CPU " + s[0]
	}
	return "CPUs " + strings.Join(s, ",")
}

// Share returns n of the CPUs, from the i-th on and round again; all if there
// are fewer.
func Share(cpus []int, i, n int) []int {
	if len(cpus) <= n {
		return cpus
	}
	var out []int
	for k := range n {
		out = append(out, cpus[(i+k)%len(cpus)])
	}
	return out
}

// Rest returns the CPUs that are not in taken; all of them if none is left.
func Rest(cpus, taken []int) []int {
	var out []int
next:
	for _, c := range cpus {
		for _, t := range taken {
			if c == t {
				continue next
			}
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return cpus
	}
	return out
}
