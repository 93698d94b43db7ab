package api

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/tandem-llm/tandem/internal/room"
)

// Member is one member of a body's outermost object.
type Member struct {
	Key   string
	Value []byte // the value's bytes as they stand in the body, without space around
	At    int    // where Value begins in the body
}

// Members lists the members of body's outermost object in order, duplicates
// included, and returns the index of its closing brace. It looks inside no value: it follows
// strings and brackets only, so its cost is that of finding quotes. What it
// accepts is not yet JSON (see json.Valid), but every JSON object is accepted,
// and no reader that takes the body for JSON can see another outermost key.
func Members(body []byte) (members []Member, end int, cause *room.Cause) {
	i := skipSpace(body, 0)
	if i == len(body) {
		return nil, 0, room.Because(room.BadRequest, "the body is empty: send one JSON object")
	}
	if body[i] != '{' {
		return nil, 0, room.Because(room.BadRequest, "the body starts with %q: send one JSON object", body[i:i+1])
	}
	i = skipSpace(body, i+1)
	if i < len(body) && body[i] == '}' {
		return members, i, trailing(body, i+1)
	}
	for {
		i = skipSpace(body, i)
		if i == len(body) || body[i] != '"' {
			return nil, 0, notJSON(body, i, "a key in double quotes")
		}
		j := skipString(body, i)
		if j < 0 {
			return nil, 0, notJSON(body, len(body), "the end of a string")
		}
		key, ok := unquote(body[i:j])
		if !ok {
			return nil, 0, notJSON(body, i, "a key")
		}
		i = skipSpace(body, j)
		if i == len(body) || body[i] != ':' {
			return nil, 0, notJSON(body, i, "a colon")
		}
		i = skipSpace(body, i+1)
		j = skipValue(body, i)
		if j < 0 {
			return nil, 0, notJSON(body, len(body), "the end of the value of "+key)
		}
		value := bytes.TrimRight(body[i:j], " \t\r\n")
		if len(value) == 0 {
			return nil, 0, notJSON(body, i, "a value for "+key)
		}
		members = append(members, Member{key, value, i})
		if body[j] == '}' {
			return members, j, trailing(body, j+1)
		}
		i = j + 1
	}
}

func trailing(body []byte, i int) *room.Cause {
	if i = skipSpace(body, i); i < len(body) {
		return notJSON(body, i, "the end of the body")
	}
	return nil
}

func notJSON(body []byte, i int, want string) *room.Cause {
	if i >= len(body) {
		return room.Because(room.BadRequest, "the body is not JSON: it ends at byte %d where %s should be", len(body), want)
	}
	return room.Because(room.BadRequest, "the body is not JSON: byte %d is %q where %s should be", i, body[i:i+1], want)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at b[i], or -1.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		back := 0
		for b[i-1-back] == '\\' { // the opening quote ends this at the latest
			back++
		}
		if back%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index of the comma or brace that ends the value at b[i],
// or -1 if none does.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				if b[i] == ']' {
					return -1
				}
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return -1
}

func unquote(quoted []byte) (string, bool) {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1]), true
	}
	var s string
	return s, json.Unmarshal(quoted, &s) == nil
}

// Is reports whether the value is exactly this literal, e.g. true or null.
func (m Member) Is(literal string) bool { return string(m.Value) == literal }
