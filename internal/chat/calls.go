package chat

import (
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
)

// Piece is what an answer gained: text, or a part of one call.
type Piece struct {
	Text string

	Call      int  // the call's number, from 0
	Begins    bool // it is the call's first part, and has its name
	Name      string
	Arguments string // more of the call's arguments
}

// Where a CallParser stands.
const (
	inStart  = iota // only space so far; a bare object may come
	inText          // outside of calls
	inOpen          // behind a marker or a comma, before what it announces
	inName          // Mistral: in a name or a tag behind it
	inObject        // in the call's object, or in its arguments
	inTail          // behind a call, where its closing markup may come
)

// CallParser parts an answer's text from the calls in it. A call is told when it is
// whole: until then it may turn out to be none, and then all of it is text. What it
// returns, joined, does not depend on how the text was split. One goroutine uses it.
//
// It is not yzma's message parser: that one takes whole answers only, makes every
// argument a string, and loses what it cannot read.
type CallParser struct {
	form    Form
	offered map[string]bool
	eager   bool // a grammar holds the answer to calls: tell them as they are written
	several bool

	state  int
	space  []byte // behind the text, not shown yet: it is none if a call follows
	held   []byte // in text: what may be the beginning of the marker
	raw    []byte // what is text if the call is none
	tail   []byte // behind a call
	blank  int    // bytes of tail that are space, or part calls
	list   bool   // Mistral: in a list of calls
	closed bool   // the call's closing markup has come
	calls  int    // told so far
	broken bool   // the last of them was no call after all
	taken  int    // bytes pushed

	scan      scan
	only      bool // the object is the arguments; the name stood before it
	told      bool // the call's name was told, and what there was of its arguments
	flows     bool // the rest of them goes out as it comes
	key       string
	value     []byte // of key, as far as it has come
	name      string
	arguments string
	tag       []byte // Mistral: behind a name

	out    []Piece
	gained []byte // of the call gains, or of the text, since the last piece
	gains  int
}

// NewCallParser returns a parser of one answer. names are the functions that may
// be called: a call of another one is text.
func NewCallParser(form Form, names []string, eager, several bool) *CallParser {
	p := &CallParser{form: form, offered: make(map[string]bool, len(names)), eager: eager, several: several, state: inText, gains: noCall}
	for _, n := range names {
		p.offered[n] = true
	}
	if form == FormLlama {
		p.state = inStart
	}
	return p
}

// Calls returns how many calls were told.
func (p *CallParser) Calls() int { return p.calls }

// Open says that the last call that was told lacks its end.
func (p *CallParser) Open() bool { return p.told || p.broken }

// Full says that no more calls are wanted: what follows is dropped.
func (p *CallParser) Full() bool { return !p.several && p.calls > 0 && !p.told }

// Decided returns how many of the bytes pushed have become text, a call or nothing.
func (p *CallParser) Decided() int {
	return p.taken - len(p.space) - len(p.held) - len(p.raw) - len(p.tail)
}

// Push takes text, in whole characters, and returns what it adds.
func (p *CallParser) Push(text string) []Piece {
	p.taken += len(text)
	for i := range len(text) {
		p.step(text[i])
	}
	return p.take()
}

// Flush returns what was held back, at the answer's end.
func (p *CallParser) Flush() []Piece {
	if !p.Full() {
		p.emit(p.space)
		p.emit(p.held)
		if !(p.list && p.state == inOpen && p.calls > 0) { // else a comma behind the last call
			p.emit(p.raw)
		}
	}
	p.space, p.held, p.raw, p.tail = nil, nil, nil, nil
	return p.take()
}

func (p *CallParser) step(c byte) {
	switch p.state {
	case inStart:
		switch {
		case isSpace(c):
			p.space = append(p.space, c)
		case c == '{':
			p.raw, p.space = append(p.space, c), nil
			p.object(false)
		default:
			p.state = inText
			p.text(c)
		}
	case inText:
		p.text(c)
	case inOpen:
		p.open(c)
	case inName:
		p.named(c)
	case inObject:
		p.inside(c)
	case inTail:
		p.behind(c)
	}
}

// text takes a byte outside of calls.
func (p *CallParser) text(c byte) {
	if len(p.held) == 0 && isSpace(c) {
		p.space = append(p.space, c)
		return
	}
	p.held = append(p.held, c)
	marker := p.form.marker()
	if string(p.held) == marker {
		p.raw = append(p.space, p.held...)
		p.space, p.held = nil, nil
		p.state, p.list = inOpen, false
		return
	}
	for len(p.held) > 0 && !strings.HasPrefix(marker, string(p.held)) {
		if isSpace(p.held[0]) {
			p.space = append(p.space, p.held[0])
		} else {
			p.emit(p.space)
			p.emit(p.held[:1])
			p.space = p.space[:0]
		}
		p.held = p.held[1:]
	}
}

// open takes a byte where a call should begin.
func (p *CallParser) open(c byte) {
	mistral := p.form == FormMistral || p.form == FormMistralArgs
	switch {
	case isSpace(c):
		p.raw = append(p.raw, c)
	case c == '{':
		p.raw = append(p.raw, c)
		p.object(false)
	case mistral && c == '[' && !p.list:
		p.raw = append(p.raw, c)
		p.list = true
	case mistral && nameByte(c) && !p.list:
		p.raw = append(p.raw, c)
		p.state, p.name, p.tag = inName, string(c), nil
	default:
		p.fail(c)
	}
}

// named takes a byte of a name, or of the tags between it and its arguments.
func (p *CallParser) named(c byte) {
	switch tag := string(p.tag); {
	case tag == "" && nameByte(c) && len(p.name) < api.MaxToolName:
		p.name += string(c)
	case tag == mistralArgs && c == '{':
		p.raw = append(p.raw, c)
		p.object(true)
		return
	case tag == mistralArgs && isSpace(c):
	case tag == mistralCall && nameByte(c): // its id: ours is another one
	case tag == mistralCall && c == '[':
		p.tag = []byte{c}
	case tag != mistralArgs && tag != mistralCall && (strings.HasPrefix(mistralArgs, tag+string(c)) || strings.HasPrefix(mistralCall, tag+string(c))):
		p.tag = append(p.tag, c)
	default:
		p.fail(c)
		return
	}
	p.raw = append(p.raw, c)
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// behind takes a byte after a call.
func (p *CallParser) behind(c byte) {
	p.tail = append(p.tail, c)
	if p.blank == len(p.tail)-1 && isSpace(c) {
		p.blank++
		return
	}
	markup := string(p.tail[p.blank:])
	switch {
	case p.form == FormHermes && !p.closed && strings.HasPrefix(hermesClose, markup):
		if markup == hermesClose {
			p.closed, p.tail, p.blank = true, nil, 0
		}
		return
	case p.form == FormLlama && markup == ";":
		p.blank = len(p.tail)
		return
	case p.form == FormLlama && markup == "{":
		p.raw, p.tail, p.blank = p.tail, nil, 0
		p.object(false)
		return
	case p.list && markup == ",":
		p.raw, p.tail, p.blank = p.tail, nil, 0
		p.state = inOpen
		return
	case p.list && markup == "]":
		p.list, p.tail, p.blank = false, nil, 0
		return
	}
	tail := p.tail
	p.tail, p.blank, p.state = nil, 0, inText
	for _, c := range tail {
		p.step(c)
	}
}

// fail says that raw is no call, as c shows, which is looked at again.
func (p *CallParser) fail(c byte) {
	p.emit(p.raw)
	p.raw, p.state = nil, inText
	p.text(c)
}

// emit shows text.
func (p *CallParser) emit(text []byte) {
	if !p.Full() {
		p.add(noCall, text...)
	}
}

// noCall is the number of what is text.
const noCall = -1

// add adds to the text, or to a call's arguments.
func (p *CallParser) add(call int, b ...byte) {
	if call != p.gains {
		p.settle()
		p.gains = call
	}
	p.gained = append(p.gained, b...)
}

// settle makes a piece of what was added.
func (p *CallParser) settle() {
	switch {
	case len(p.gained) == 0:
	case p.gains == noCall:
		p.out = append(p.out, Piece{Text: string(p.gained)})
	default:
		p.out = append(p.out, Piece{Call: p.gains, Arguments: string(p.gained)})
	}
	p.gained = p.gained[:0]
}

// take returns the pieces so far.
func (p *CallParser) take() []Piece {
	p.settle()
	out := p.out
	p.out = nil
	return out
}
