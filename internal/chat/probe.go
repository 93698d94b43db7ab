package chat

import (
	"encoding/json"
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
)

// Words that no template has of its own.
const (
	probeName  = "probed_function"
	probeKey   = "probed_key"
	probeValue = "probed_value"
	probeID    = "probedid1" // nine letters and digits, as Mistral's want it
)

// probe finds out, by trying, what the template does with tools: whether its prompt
// tells the model of them in a form that is known here, whether it writes calls and
// their answers, and whether it wants a call's arguments as an object.
func (r *Renderer) probe(source string) {
	known := false
	if r.form, known = formOf(source); !known {
		return
	}
	tools := []api.Tool{{Name: probeName, Description: "d", Parameters: json.RawMessage(`{"type":"object","properties":{"` + probeKey + `":{"type":"string","description":"d"}},"required":["` + probeKey + `"]}`)}}
	user := api.Message{Role: "user", Content: "q"}
	if text, err := r.render([]api.Message{user}, tools, true, 0); err != nil || !strings.Contains(text, probeName) {
		r.form = FormHermes
		return
	}
	r.native = true
	talk := []api.Message{user,
		{Role: "assistant", Calls: []api.ToolCall{{ID: probeID, Name: probeName, Arguments: `{"` + probeKey + `":"` + probeValue + `"}`}}},
		{Role: "tool", CallID: probeID, Name: probeName, Content: "probed_answer"}}
	for _, r.quoted = range []bool{false, true} {
		text, err := r.render(talk, nil, true, 0)
		if err != nil || !strings.Contains(text, "probed_answer") || !strings.Contains(text, probeName) || !strings.Contains(text, probeValue) {
			continue
		}
		if r.quoted || !strings.Contains(text, "'"+probeKey+"'") { // else Python's way to write an object, not JSON's
			r.turns = true
			return
		}
	}
	r.quoted = false
}
