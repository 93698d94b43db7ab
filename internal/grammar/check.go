package grammar

import (
	"fmt"
	"strconv"
	"strings"
)

// Check refuses a GBNF text that would cost the library more than bounded memory
// or stack. Whether it is a grammar, the library says.
func Check(gbnf string) error {
	if len(gbnf) > MaxText {
		return fmt.Errorf("%d bytes, the limit is %d", len(gbnf), MaxText)
	}
	if strings.IndexByte(gbnf, 0) >= 0 {
		return fmt.Errorf("it holds a NUL")
	}
	rules := strings.Count(gbnf, "::=")
	depth, repeats, longest := 0, 0, 0
	for i := 0; i < len(gbnf); i++ {
		switch gbnf[i] {
		case '#':
			if n := strings.IndexByte(gbnf[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(gbnf)
			}
		case '"', '[':
			end := byte('"')
			if gbnf[i] == '[' {
				end = ']'
			}
			from := i
			for i++; i < len(gbnf) && gbnf[i] != end; i++ {
				if gbnf[i] == '\\' {
					i++
				}
			}
			longest = max(longest, i-from)
		case '(':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("brackets are nested deeper than %d", MaxDepth)
			}
		case ')':
			depth--
		case '{':
			n := strings.IndexByte(gbnf[i:], '}')
			if n < 0 {
				return fmt.Errorf("a { is not closed")
			}
			least := 0
			for _, num := range strings.Split(gbnf[i+1:i+n], ",") {
				if num = strings.TrimSpace(num); num == "" {
					continue
				}
				x, err := strconv.Atoi(num)
				if err != nil || x < least { // the library would count down from {3,1} through all numbers
					return fmt.Errorf("%.20q is not a number of repetitions, or above the next one", num)
				}
				least = x
				if repeats += min(x, MaxRepeat+1); repeats > MaxRepeat {
					return fmt.Errorf("all repetitions together are more than %d", MaxRepeat)
				}
			}
			i += n
		}
	}
	switch {
	case rules == 0:
		return fmt.Errorf("it has no rule")
	case rules > MaxRules:
		return fmt.Errorf("%d rules, the limit is %d", rules, MaxRules)
	case repeats*longest > maxCopied:
		return fmt.Errorf("repetitions of long strings would become more than %d bytes", maxCopied)
	}
	return nil
}
