package upstream

import (
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// Body is a client's body, looked at but not decoded: a prompt of 100,000
// tokens costs the search for its quotes.
type Body struct {
	Bytes  []byte
	Model  string // as the body says, "" if it does not
	Label  string // the client's own rid: a label in records, never an identity
	Stream bool

	end        int // of the closing brace
	empty      bool
	ridA, ridB int // where the client's rid value stands; 0, 0 without one
}

// maxLabel bounds what of a client's rid is kept.
const maxLabel = 128

// Examine looks at a client's body. Fields that are the router's to set are
// refused: they would let a client join rooms of others.
func Examine(body []byte) (*Body, *room.Cause) {
	members, end, cause := api.Members(body)
	if cause != nil {
		return nil, cause
	}
	b := &Body{Bytes: body, end: end, empty: len(members) == 0}
	for _, m := range members {
		switch lower := strings.ToLower(m.Key); {
		case strings.HasPrefix(lower, "bootstrap_"), strings.HasPrefix(lower, "tandem_"):
			return nil, room.Because(room.BadRequest, "%s: only the router sets this field: leave it out", lower)
		case lower == "rid":
			if m.Key != lower || b.ridB > 0 || m.Value[0] != '"' && !m.Is("null") {
				return nil, room.Because(room.BadRequest, "rid: only one string is taken, as a label: the router mints the request's id")
			}
			b.Label = text(m.Value, maxLabel)
			b.ridA, b.ridB = m.At, m.At+len(m.Value)
		case m.Key == "model":
			b.Model = text(m.Value, maxLabel)
		case m.Key == "stream":
			b.Stream = m.Is("true")
		}
	}
	return b, nil
}

// text returns a string value for people to read, cut to most bytes; escapes
// stay as they are.
func text(value []byte, most int) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	value = value[1 : len(value)-1]
	return strings.ToValidUTF8(string(value[:min(len(value), most)]), "")
}

// With returns a copy of the body in which rid, if the client sent one, is
// replaced by rid's JSON and the members in fields (`"a":1,"b":2`) are appended; every
// other byte is as the client wrote it. Without a rid of the client's it is the
// first appended.
func (b *Body) With(rid, fields string) []byte {
	out := make([]byte, 0, b.end+len(rid)+len(fields)+16)
	if b.ridB > 0 {
		out = append(out, b.Bytes[:b.ridA]...)
		out = append(out, rid...)
		out = append(out, b.Bytes[b.ridB:b.end]...)
	} else {
		out = append(out, b.Bytes[:b.end]...)
	}
	if !b.empty {
		out = append(out, ',')
	}
	if b.ridB == 0 {
		out = append(append(append(out, `"rid":`...), rid...), ',')
	}
	out = append(out, fields...)
	return append(out, '}')
}
