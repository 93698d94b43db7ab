package chat

import (
	"strconv"
	"strings"
	"time"
)

// layouts are Python's strftime directives in Go's terms, for the ones a date
// in a prompt may use.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'B': "January", 'b': "Jan", 'h': "Jan",
	'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'c': "Mon Jan _2 15:04:05 2006",
	'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats t; a directive it does not know stays as it is.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		c, plain := format[i], false
		if c == '-' && i+1 < len(format) { // no leading zero
			i++
			c, plain = format[i], true
		}
		switch layout, ok := layouts[c]; {
		case ok && plain:
			b.WriteString(strings.TrimLeft(t.Format(layout), "0 "))
		case ok:
			b.WriteString(t.Format(layout))
		case c == 'j':
			s := strconv.Itoa(t.YearDay())
			b.WriteString(strings.Repeat("0", 3-len(s)) + s)
		case c == '%':
			b.WriteByte('%')
		default:
			b.WriteByte('%')
			if plain {
				b.WriteByte('-')
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}
