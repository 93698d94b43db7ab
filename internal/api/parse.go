package api

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// Parse turns a body into a Call. A refusal is a bad_request whose detail
// begins with the field's name and a colon, where one field is to blame.
func Parse(kind Kind, body []byte, limits Limits) (*Call, *room.Cause) {
	f, cause := newFields(body, limits)
	if cause != nil {
		return nil, cause
	}
	c := &Call{Kind: kind}
	f.str("model", &c.Model)
	f.flag("stream", &c.Stream)
	f.leg(c)
	switch kind {
	case Chat:
		f.messages(c)
		f.tools(c)
	case Completion:
		f.prompt(c, "prompt")
		f.refuseUnless("suffix", "insertion is not supported", isEmpty)
	case Generate:
		f.generate(c)
	}
	if kind != Generate {
		f.streamOptions(c)
		f.sampling(c, "max_completion_tokens", "max_tokens", "seed")
		f.openAIOnly(c)
	}
	f.check(c)
	if f.cause != nil {
		return nil, f.cause
	}
	return c, nil
}

// fields reads members of one object and keeps the first complaint.
type fields struct {
	prefix string // of names in complaints, e.g. "sampling_params."
	values map[string][]byte
	limits Limits
	cause  *room.Cause
}

func (f *fields) bad(name, format string, args ...any) {
	if f.cause == nil {
		f.cause = room.Because(room.BadRequest, f.prefix+name+": "+format, args...)
	}
}

// get returns a field's value; null counts as absent, as in both APIs.
func (f *fields) get(name string) ([]byte, bool) {
	v, ok := f.values[name]
	return v, ok && string(v) != "null"
}

func (f *fields) str(name string, into *string) {
	if v, ok := f.get(name); ok && json.Unmarshal(v, into) != nil {
		f.bad(name, "%s is not a string", show(v))
	}
}

func (f *fields) flag(name string, into *bool) {
	if v, ok := f.get(name); ok && json.Unmarshal(v, into) != nil {
		f.bad(name, "%s is not true or false", show(v))
	}
}

// integer reads a whole number in [lo, hi]; 3.0 is one, as Python clients send it.
func (f *fields) integer(name string, lo, hi int64, into *int64) bool {
	v, ok := f.get(name)
	if !ok {
		return false
	}
	if json.Unmarshal(v, into) != nil {
		var x float64
		if json.Unmarshal(v, &x) != nil {
			f.bad(name, "%s is not a number", show(v))
			return false
		}
		if x != math.Trunc(x) {
			f.bad(name, "%s is not a whole number", show(v))
			return false
		}
		switch { // 2^53 bounds what a float says exactly
		case x >= 1<<53:
			*into = math.MaxInt64
		case x <= -1<<53:
			*into = math.MinInt64
		default:
			*into = int64(x)
		}
	}
	if *into < lo {
		f.bad(name, "%s is below the least of %d", show(v), lo)
		return false
	}
	if *into > hi {
		f.bad(name, "%s is above the limit of %d", show(v), hi)
		return false
	}
	return true
}

// number reads a number in [lo, hi], or (lo, hi] when open.
func (f *fields) number(name string, lo, hi float64, open bool, into *float32) {
	v, ok := f.get(name)
	if !ok {
		return
	}
	var x float64
	if json.Unmarshal(v, &x) != nil {
		f.bad(name, "%s is not a number", show(v))
		return
	}
	switch {
	case open && x <= lo:
		f.bad(name, "%s must be above %g", show(v), lo)
	case x < lo:
		f.bad(name, "%s is below the least of %g", show(v), lo)
	case x > hi:
		f.bad(name, "%s is above the limit of %g", show(v), hi)
	}
	*into = float32(x)
	if open && *into <= float32(lo) {
		*into = math.SmallestNonzeroFloat32 // what float32 rounds to zero is still not zero
	}
}

func (f *fields) streamOptions(c *Call) {
	v, ok := f.get("stream_options")
	if !ok {
		return
	}
	var o struct {
		IncludeUsage bool `json:"include_usage"`
	}
	if json.Unmarshal(v, &o) != nil {
		f.bad("stream_options", `%s is not an object like {"include_usage":true}`, show(v))
		return
	}
	c.IncludeUsage = o.IncludeUsage && c.Stream
}

// leg reads what the router adds.
func (f *fields) leg(c *Call) {
	var rid string
	f.str("rid", &rid)
	if len(rid) > MaxRID {
		f.bad("rid", "%d bytes are above the limit of %d", len(rid), MaxRID)
	}
	if strings.IndexFunc(rid, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		f.bad("rid", "%q holds a character that is not visible ASCII", rid)
	}
	c.RID = id.RID(rid)
	var rm, port, at, left int64
	if v, ok := f.get("bootstrap_room"); !ok {
		return
	} else if v[0] == '[' {
		f.bad("bootstrap_room", "batches are not supported: send one request per prompt")
		return
	}
	f.integer("bootstrap_room", 1, math.MaxInt64, &rm)
	f.integer("bootstrap_port", 1, math.MaxUint16, &port)
	f.integer("tandem_request_time", 1, 1<<40, &at)
	f.integer("tandem_remaining_ms", 1, MaxRemaining.Milliseconds(), &left)
	c.Leg = &Leg{
		RID:           c.RID,
		Room:          id.Room(rm),
		BootstrapPort: int(port),
		RequestTime:   at,
		Remaining:     time.Duration(left) * time.Millisecond,
	}
	f.str("bootstrap_host", &c.Leg.BootstrapHost)
	if len(c.Leg.BootstrapHost) > 255 { // the longest DNS name
		f.bad("bootstrap_host", "%d bytes are above the limit of 255", len(c.Leg.BootstrapHost))
	}
}

// refuseUnless complains about a field that would change the answer in a way
// that is not built.
func (f *fields) refuseUnless(name string, why string, fine func([]byte) bool) {
	if v, ok := f.get(name); ok && !fine(v) {
		f.bad(name, "%s is refused: %s", show(v), why)
	}
}

func isTrue(v []byte) bool  { return string(v) == "true" }
func isFalse(v []byte) bool { return string(v) == "false" }

func isEmpty(v []byte) bool {
	switch v[0] {
	case '"', '[', '{':
		return skipSpace(v, 1) == len(v)-1
	}
	return false
}

func isNumber(want float64) func([]byte) bool {
	return func(v []byte) bool {
		var x float64
		return json.Unmarshal(v, &x) == nil && x == want
	}
}

func isTextList(v []byte) bool {
	var l []string
	return json.Unmarshal(v, &l) == nil && len(l) == 1 && l[0] == "text"
}

// show returns a value short enough for a message.
func show(v []byte) string {
	const most = 40 // enough to recognise it
	if len(v) <= most {
		return string(v)
	}
	return strings.ToValidUTF8(string(v[:most]), "") + "…"
}
