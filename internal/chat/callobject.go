package chat

import (
	"encoding/json"
	"strings"
)

// object begins an object, whose brace is in raw.
func (p *CallParser) object(only bool) {
	p.state, p.only, p.told, p.flows = inObject, only, false, false
	p.scan = scan{key: p.scan.key[:0], number: p.scan.number[:0]}
	p.scan.step('{')
	p.key, p.value, p.arguments = "", p.value[:0], ""
	if !only {
		p.name = ""
		return
	}
	p.value = append(p.value, '{')
	if p.eager && p.offered[p.name] {
		p.tell("{")
		p.flows = true
	}
}

// inside takes a byte of an object.
func (p *CallParser) inside(c byte) {
	what := p.scan.step(c)
	if what == scanBad {
		p.broken = p.broken || p.told // what was told of it stays; the rest is text
		p.told, p.flows = false, false
		p.fail(c)
		return
	}
	if !p.told {
		p.raw = append(p.raw, c)
	}
	if p.only {
		p.more(c)
	} else {
		p.member(c, what)
	}
	if what == scanDone {
		p.end()
	}
}

// more takes a byte of the arguments.
func (p *CallParser) more(c byte) {
	if p.flows {
		p.add(p.calls-1, c)
	} else {
		p.value = append(p.value, c)
	}
}

// member takes a byte of the object around name and arguments.
func (p *CallParser) member(c byte, what scanned) {
	switch what {
	case scanKey:
		p.key = ""
		_ = json.Unmarshal(p.scan.key, &p.key) // the scan says that it is a string
		return
	case scanValue:
		p.value = append(p.value[:0], c)
		if p.eager && c == '{' && p.isArguments() && p.offered[p.name] && p.arguments == "" && !p.told {
			p.tell("{")
			p.flows = true
		}
		return
	case scanDone:
		return
	}
	switch {
	case p.key == "":
		return
	case p.flows, p.key == "name", p.isArguments():
		p.more(c)
	}
	if what != scanEnd {
		return
	}
	switch {
	case p.key == "name" && !p.told:
		p.name = ""
		_ = json.Unmarshal(p.value, &p.name) // no string: no name
	case p.isArguments() && !p.told:
		p.arguments = string(p.value)
	}
	p.key, p.flows = "", false
}

func (p *CallParser) isArguments() bool { return p.key == "arguments" || p.key == "parameters" }

// end looks at a whole object: a call, or text.
func (p *CallParser) end() {
	if p.only {
		p.arguments = string(p.value)
	}
	var quoted string
	if !p.told && strings.HasPrefix(p.arguments, `"`) && json.Unmarshal([]byte(p.arguments), &quoted) == nil {
		p.arguments = quoted // some models write them as a string, as the API has them
	}
	bare := p.form == FormLlama && p.calls == 0 && p.raw != nil && !strings.Contains(string(p.raw), llamaOpen)
	if p.arguments == "" && !bare { // of a function without any
		p.arguments = "{}"
	}
	switch {
	case p.told:
	case p.offered[p.name] && isObject(p.arguments):
		p.tell(p.arguments)
	default:
		p.emit(p.raw)
		p.raw = nil
		p.state = inText
		return
	}
	p.raw, p.told, p.closed, p.tail, p.blank = nil, false, false, nil, 0
	p.state = inTail
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " \n\t\r"), "{") && json.Valid([]byte(text))
}

// tell begins a call.
func (p *CallParser) tell(arguments string) {
	if p.Full() {
		return
	}
	p.settle()
	p.out = append(p.out, Piece{Call: p.calls, Begins: true, Name: p.name})
	p.add(p.calls, []byte(arguments)...)
	p.calls++
	p.told, p.raw = true, nil
}
