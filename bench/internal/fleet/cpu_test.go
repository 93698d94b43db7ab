package fleet

import (
	"slices"
	"testing"
)

func TestCPULists(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0,2-4": {0, 2, 3, 4}, "none": nil} {
		if got, err := CPUs(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", list, got, err, want)
		}
	}
	for _, list := range []string{"a", "3-1", "-1", "0,,1", "0-99999"} {
		if got, err := CPUs(list); err == nil {
			t.Errorf("%s: %v", list, got)
		}
	}
}

func TestCPUsAreShared(t *testing.T) {
	four := []int{0, 1, 2, 3}
	for _, c := range []struct{ got, want []int }{
		{Share(four, 0, 2), []int{0, 1}}, {Share(four, 3, 2), []int{3, 0}}, {Share(four[:1], 1, 2), []int{0}}, {Share(nil, 0, 1), nil},
		{Rest(four, []int{1}), []int{0, 2, 3}}, {Rest(four[:1], []int{0}), []int{0}}, {Rest(nil, nil), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
}
