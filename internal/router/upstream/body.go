package upstream

import (
	"encoding/json"
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// Body is a client's body, looked at but not decoded: a prompt of 100,000
// tokens costs the search for its quotes.
type Body struct {
	Bytes  []byte
	Model  string // as the body says, "" if it does not
	Label  string // the client's own rid: a label that requests are found by, never an identity
	Stream bool
	Local  bool // one worker must compute all of it: no hand-over

	end        int // of the closing brace
	empty      bool
	ridA, ridB int // where the client's rid value stands; 0, 0 without one
}

// maxLabel bounds a client's rid, in bytes. It is kept whole, as requests are found
// and aborted by it.
const maxLabel = 512

// Examine looks at a client's body. Fields that are the router's to set are
// refused: they would let a client join rooms of others.
func Examine(kind api.Kind, body []byte) (*Body, *room.Cause) {
	members, end, cause := api.Members(body)
	if cause != nil {
		return nil, cause
	}
	b := &Body{Bytes: body, Local: api.Local(kind, members), end: end, empty: len(members) == 0}
	for _, m := range members {
		switch lower := strings.ToLower(m.Key); {
		case strings.HasPrefix(lower, "bootstrap_"), strings.HasPrefix(lower, "tandem_"):
			return nil, room.Because(room.BadRequest, "%s: only the router sets this field: leave it out", lower)
		case lower == "rid":
			if m.Key != lower || b.ridB > 0 || m.Value[0] != '"' && !m.Is("null") || !json.Valid(m.Value) {
				return nil, room.Because(room.BadRequest, "rid: only one string is taken, as a label: the router mints the request's id")
			}
			if b.Label = text(m.Value); len(b.Label) > maxLabel {
				return nil, room.Because(room.BadRequest, "rid: %d bytes are above the limit of %d", len(b.Label), maxLabel)
			}
			b.ridA, b.ridB = m.At, m.At+len(m.Value)
		case m.Key == "model":
			b.Model = text(m.Value)
		case m.Key == "stream":
			b.Stream = m.Is("true")
		}
	}
	return b, nil
}

// text returns what a string value says, "" for any other.
func text(value []byte) (s string) {
	_ = json.Unmarshal(value, &s) // null, or not a string: the worker judges
	return s
}

// With returns the body in which rid, if the client sent one, is replaced by rid's
// JSON and the members in fields (`"a":1,"b":2`) are appended; every other byte is as
// the client wrote it. Without a rid of the client's it is the first appended. The
// client's bytes are shared, not copied.
func (b *Body) With(rid, fields string) Parts {
	var out Parts
	if b.ridB > 0 {
		out = Parts{b.Bytes[:b.ridA], []byte(rid), b.Bytes[b.ridB:b.end]}
	} else {
		out = Parts{b.Bytes[:b.end]}
	}
	var tail []byte
	if !b.empty {
		tail = append(tail, ',')
	}
	if b.ridB == 0 {
		tail = append(append(append(tail, `"rid":`...), rid...), ',')
	}
	tail = append(tail, fields...)
	return append(out, append(tail, '}'))
}
