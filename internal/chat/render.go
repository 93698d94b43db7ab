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
	t, err := jinja.Compile(trimBlocks(template))
	if err != nil {
		return nil, fmt.Errorf("the chat template cannot be compiled: %w", err)
	}
	return &Renderer{template: t, bos: bos, eos: eos}, nil
}

// Render returns the prompt's text. requestTime, in unix seconds, is the
// template's clock, in UTC. An error is a *room.Cause, bad_request: the
// template refused the messages, as templates do with roles that do not take
// turns.
func (r *Renderer) Render(messages []api.Message, addGenerationPrompt bool, requestTime int64) (text string, err error) {
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		v := jinja.NewDict()
		d := v.AsDict()
		d.Set("role", jinja.NewString(m.Role))
		d.Set("content", jinja.NewString(m.Content))
		list[i] = v
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
		"tools":                 jinja.None(),
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
