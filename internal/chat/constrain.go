package chat

import (
	"strconv"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/grammar"
	"github.com/tandem-llm/tandem/internal/room"
)

// Constrain holds an answer that must be a call to the form in which the model
// writes calls. Where it may be one, a response_format still binds all else.
func (r *Renderer) Constrain(call *api.Call) *room.Cause {
	must := call.ToolChoice == api.ToolRequired
	if len(call.Tools) == 0 || !must && call.Schema == nil {
		return nil
	}
	g := r.form.calls(!must)
	g.Several = call.Parallel && call.OneTool == "" && r.form != FormLlama
	if !must {
		g.Or = call.Schema
	}
	for i, t := range call.Tools {
		if call.OneTool == "" || call.OneTool == t.Name {
			f := grammar.Function{Name: t.Name, Schema: t.Parameters}
			f.At = "tools[" + strconv.Itoa(i) + "].function.parameters"
			f.Loose = !must && !t.Strict
			g.Functions = append(g.Functions, f)
		}
	}
	text, err := g.Grammar()
	if err != nil {
		return room.Because(room.BadRequest, "%v", err)
	}
	call.Params.Grammar = text
	return nil
}
