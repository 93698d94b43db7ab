package chat

import (
	"strings"

	"github.com/tandem-llm/tandem/internal/grammar"
)

// Form is how a model writes its calls.
type Form uint8

const (
	// FormHermes is <tool_call>{"name":…,"arguments":{…}}</tool_call>, as Hermes
	// and Qwen write it, and what the fallback text asks for.
	FormHermes Form = iota
	// FormLlama is {"name":…,"parameters":{…}} as the whole answer, or anywhere
	// behind <|python_tag|>; several are parted by semicolons.
	FormLlama
	// FormMistral is [TOOL_CALLS][{"name":…,"arguments":{…}},…].
	FormMistral
	// FormMistralArgs is [TOOL_CALLS]name[ARGS]{…}, as its later models write it.
	FormMistralArgs
)

// Markup of the forms.
const (
	hermesOpen   = "<tool_call>"
	hermesClose  = "</tool_call>"
	llamaOpen    = "<|python_tag|>"
	mistralOpen  = "[TOOL_CALLS]"
	mistralArgs  = "[ARGS]"
	mistralCall  = "[CALL_ID]"
	mistralIDLen = 9 // its templates take no other id
)

// markups are the texts of which a vocabulary may have a control token of its own,
// which is part of no text otherwise.
var markups = map[string]bool{hermesOpen: true, hermesClose: true, llamaOpen: true, mistralOpen: true, mistralArgs: true, mistralCall: true}

// Markup says whether a control token of this name is part of a call's text.
func Markup(name []byte) bool { return markups[string(name)] }

// formOf returns the form that a template's text shows, and whether it shows one
// that is known here.
func formOf(template string) (Form, bool) {
	has := func(s string) bool { return strings.Contains(template, s) }
	switch {
	case has(mistralOpen) && has(mistralArgs):
		return FormMistralArgs, true
	case has(mistralOpen):
		return FormMistral, true
	case has("<function="): // the arguments as XML: Qwen3-Coder, and a variant of Llama's
		return FormHermes, false
	case has(hermesOpen):
		return FormHermes, true
	case has(llamaOpen), has("<|start_header_id|>") && has(`"parameters"`):
		return FormLlama, true
	}
	return FormHermes, false
}

// marker is what a call begins with.
func (f Form) marker() string {
	switch f {
	case FormLlama:
		return llamaOpen
	case FormMistral, FormMistralArgs:
		return mistralOpen
	}
	return hermesOpen
}

// calls returns the form as a grammar has it. marked says that a text may also be
// no call, so that a call must show itself by its marker.
func (f Form) calls(marked bool) grammar.Calls {
	switch f {
	case FormLlama:
		c := grammar.Calls{Key: "parameters"} // one at a time: that is all such models were trained for
		if marked {
			c.Open = llamaOpen
		}
		return c
	case FormMistral:
		return grammar.Calls{Open: mistralOpen + "[", Join: ", ", Close: "]", Key: "arguments"}
	case FormMistralArgs:
		return grammar.Calls{Open: mistralOpen, Join: mistralOpen, Named: mistralArgs}
	}
	return grammar.Calls{Open: hermesOpen + "\n", Join: "\n" + hermesClose + "\n" + hermesOpen + "\n", Close: "\n" + hermesClose, Key: "arguments"}
}

// NewID returns an id for a call, of a text of 26 random letters and digits.
func (f Form) NewID(random func() string) string {
	if f == FormMistral || f == FormMistralArgs {
		return random()[:mistralIDLen]
	}
	return "call_" + random()[:24]
}
