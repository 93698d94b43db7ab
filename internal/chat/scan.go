package chat

import "encoding/json"

// maxNesting bounds the depth of a call's arguments.
const maxNesting = 128

// scanned is what a byte meant to a scan.
type scanned uint8

const (
	scanMore  scanned = iota
	scanBad           // no JSON object goes on like this
	scanKey           // it ended a key of the object itself
	scanValue         // it begins the value of such a key
	scanEnd           // it ended such a value, a string, a list or an object
	scanDone          // it ended the object
)

// Where a scan stands.
const (
	wantsValue = iota
	wantsItem  // a value or the end of the list
	wantsKey   // a key
	wantsFirst // a key or the end of the object
	wantsColon
	wantsMore // a comma or an end
	inString
	inEscape
	inHex
	inNumber
	inLiteral
)

// scan follows one JSON object byte by byte and accepts exactly what JSON
// allows. The zero value is ready for the opening brace.
type scan struct {
	stack  []byte // '{' and '[' that are open
	at     uint8
	isKey  bool
	key    []byte // the last key of the object itself, with its quotes
	hex    int    // digits that a \u still wants
	number []byte
	rest   string // of a literal
}

// step takes the next byte.
func (s *scan) step(c byte) scanned {
	switch s.at {
	case inString:
		return s.text(c)
	case inEscape:
		s.keep(c)
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.at = inString
		case 'u':
			s.at, s.hex = inHex, 4
		default:
			return scanBad
		}
		return scanMore
	case inHex:
		s.keep(c)
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return scanBad
		}
		if s.hex--; s.hex == 0 {
			s.at = inString
		}
		return scanMore
	case inLiteral:
		if c != s.rest[0] {
			return scanBad
		}
		if s.rest = s.rest[1:]; s.rest == "" {
			s.at = wantsMore
		}
		return scanMore
	case inNumber:
		if c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-' {
			s.number = append(s.number, c)
			return scanMore
		}
		if !json.Valid(s.number) {
			return scanBad
		}
		s.at = wantsMore // and this byte is behind it
	}
	if isSpace(c) {
		return scanMore
	}
	return s.token(c)
}

// token takes a byte between values.
func (s *scan) token(c byte) scanned {
	switch {
	case s.at == wantsColon && c == ':':
		s.at = wantsValue
		return scanMore
	case s.at == wantsMore && c == ',':
		if s.at = wantsValue; s.stack[len(s.stack)-1] == '{' {
			s.at = wantsKey
		}
		return scanMore
	case (s.at == wantsMore || s.at == wantsFirst) && c == '}' && s.stack[len(s.stack)-1] == '{',
		(s.at == wantsMore || s.at == wantsItem) && c == ']' && s.stack[len(s.stack)-1] == '[':
		s.stack = s.stack[:len(s.stack)-1]
		s.at = wantsMore
		switch len(s.stack) {
		case 0:
			return scanDone
		case 1:
			return scanEnd
		}
		return scanMore
	case (s.at == wantsKey || s.at == wantsFirst) && c == '"':
		s.at, s.isKey = inString, true
		if len(s.stack) == 1 {
			s.key = append(s.key[:0], c)
		}
		return scanMore
	case s.at == wantsValue || s.at == wantsItem:
		return s.value(c)
	}
	return scanBad
}

// value takes a value's first byte.
func (s *scan) value(c byte) scanned {
	depth := len(s.stack)
	switch {
	case c == '{' || c == '[':
		if depth == maxNesting {
			return scanBad
		}
		s.stack = append(s.stack, c)
		if s.at = wantsItem; c == '{' {
			s.at = wantsFirst
		}
	case depth == 0: // the whole is an object
		return scanBad
	case c == '"':
		s.at, s.isKey = inString, false
	case c == '-' || c >= '0' && c <= '9':
		s.at, s.number = inNumber, append(s.number[:0], c)
	case c == 't':
		s.at, s.rest = inLiteral, "rue"
	case c == 'f':
		s.at, s.rest = inLiteral, "alse"
	case c == 'n':
		s.at, s.rest = inLiteral, "ull"
	default:
		return scanBad
	}
	if depth == 1 && s.stack[0] == '{' {
		return scanValue
	}
	return scanMore
}

// text takes a byte of a string.
func (s *scan) text(c byte) scanned {
	s.keep(c)
	switch {
	case c == '\\':
		s.at = inEscape
	case c < ' ':
		return scanBad
	case c == '"' && s.isKey:
		s.at = wantsColon
		if len(s.stack) == 1 {
			return scanKey
		}
	case c == '"':
		s.at = wantsMore
		if len(s.stack) == 1 {
			return scanEnd
		}
	}
	return scanMore
}

// keep remembers a byte of a key of the object itself.
func (s *scan) keep(c byte) {
	if s.isKey && len(s.stack) == 1 {
		s.key = append(s.key, c)
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
