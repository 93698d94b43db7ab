package chat

import (
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// Renderer is one model's chat template, compiled. Safe for concurrent use.
type Renderer struct {
	template *jinja.Template
	bos, eos string

	form   Form // of the calls that the model writes
	native bool // the template tells of tools; else a text of ours does
	turns  bool // it writes calls and their answers; else they are text of ours
	quoted bool // it wants the arguments of a call as a string
}

// New compiles a model's jinja template. bos and eos are the text of these
// tokens, "" if the model has none.
func New(template, bos, eos string) (r *Renderer, err error) {
	if template == "" {
		return nil, fmt.Errorf("the model has no chat template: use /v1/completions, or give one")
	}
	defer func() {
		if v := recover(); v != nil {
			r, err = nil, fmt.Errorf("the chat template cannot be compiled: %v", v)
		}
	}()
	t, err := jinja.Compile(ownFilters(trimBlocks(template)))
	if err != nil {
		return nil, fmt.Errorf("the chat template cannot be compiled: %w", err)
	}
	r = &Renderer{template: t, bos: bos, eos: eos}
	r.probe(template)
	return r, nil
}

// Form returns how the model writes calls.
func (r *Renderer) Form() Form { return r.form }

// Render returns the prompt's text, which tells the model of the tools.
// requestTime, in unix seconds, is the template's clock, in UTC. An error is a
// *room.Cause, bad_request: the template refused the messages, as templates do
// with roles that do not take turns.
func (r *Renderer) Render(messages []api.Message, tools []api.Tool, addGenerationPrompt bool, requestTime int64) (string, error) {
	several := false
	for _, m := range messages {
		several = several || len(m.Calls) > 1
	}
	if !r.turns || !r.native && len(tools) > 0 { // one form for all of a prompt
		messages = written(messages)
		several = false
	}
	if r.native || len(tools) == 0 {
		text, err := r.render(messages, tools, addGenerationPrompt, requestTime)
		if err != nil && several {
			if text, err := r.render(oneByOne(messages), tools, addGenerationPrompt, requestTime); err == nil {
				return text, nil
			}
		}
		return text, err
	}
	about := described(tools)
	text, err := r.render(instructed(messages, about, true), nil, addGenerationPrompt, requestTime)
	if err != nil && len(messages) > 0 && messages[0].Role != "system" { // as by templates that know no such role
		if text, err := r.render(instructed(messages, about, false), nil, addGenerationPrompt, requestTime); err == nil {
			return text, nil
		}
	}
	return text, err
}

// render runs the template once.
func (r *Renderer) render(messages []api.Message, tools []api.Tool, addGenerationPrompt bool, requestTime int64) (text string, err error) {
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = r.messageValue(m)
	}
	offered := jinja.None()
	if len(tools) > 0 {
		values := make([]jinja.Value, len(tools))
		for i, t := range tools {
			values[i] = toolValue(t)
		}
		offered = jinja.NewList(values)
	}
	now := time.Unix(requestTime, 0).UTC()
	defer func() {
		if v := recover(); v != nil { // the engine panics on some type errors of a template
			text, err = "", refused(v)
		}
	}()
	text, err = r.template.RenderValues(map[string]jinja.Value{
		"messages":              jinja.NewList(list),
		"add_generation_prompt": jinja.NewBool(addGenerationPrompt),
		"bos_token":             jinja.NewString(r.bos),
		"eos_token":             jinja.NewString(r.eos),
		"tools":                 offered,
		tojsonName:              tojson,
		"strftime_now": jinja.NewCallable("strftime_now", func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
			if len(args) != 1 || !args[0].IsString() {
				return jinja.Undefined(), fmt.Errorf("strftime_now wants one format")
			}
			return jinja.NewString(strftime(now, args[0].AsString())), nil
		}),
	})
	if err != nil {
		return "", refused(err)
	}
	return text, nil
}

func refused(why any) *room.Cause {
	return room.Because(room.BadRequest, "messages: the model's chat template refuses them: %v", why)
}
