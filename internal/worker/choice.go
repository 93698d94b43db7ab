package worker

import (
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/decode"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/room"
)

// choice turns one generation's tokens into text: whole characters, cut at the
// first stop string, each token's log probabilities with the text that it
// begins.
type choice struct {
	p     *parts
	call  *api.Call
	index int
	gen   *decode.Generation
	lead  *decode.Generation // the prompt's first choice, which has its log probabilities

	prompt  []engine.Token
	echoed  string // the prompt's text, if the answer begins with it
	begun   bool
	detok   chat.Detokenizer
	stop    *chat.Stopper
	calls   *chat.CallParser // nil: the model was told of no tools
	n       int              // tokens generated
	made    int              // bytes of text that the tokens made
	chars   int              // the same in characters, an echoed prompt's included
	shown   int              // bytes of it that were shown
	waiting []waiting        // log probabilities of text not shown yet
	stopped bool             // a stop string was reached
	ended   bool
	cached  int // prompt tokens whose KV was there already
	cause   *room.Cause
}

// waiting is a log whose token's text begins at byte at.
type waiting struct {
	at  int
	log api.Log
}

func newChoice(p *parts, call *api.Call, index int, gen *decode.Generation, prompt []engine.Token) *choice {
	stops := call.Stop
	if call.Kind == api.Chat && p.stop != "" {
		stops = append(stops[:len(stops):len(stops)], p.stop)
	}
	c := &choice{p: p, call: call, index: index, gen: gen, lead: gen.Choices()[0], prompt: prompt, stop: chat.NewStopper(stops...)}
	if call.KeepStop {
		c.stop.KeepStop()
	}
	if len(call.Tools) > 0 {
		names := make([]string, len(call.Tools))
		for i, t := range call.Tools {
			names[i] = t.Name
		}
		c.calls = chat.NewCallParser(p.chat.Form(), names, call.ToolChoice == api.ToolRequired, call.Parallel)
	}
	if call.Echo {
		c.echoed = c.promptText()
		c.chars = api.Characters(c.echoed)
	}
	return c
}

// take returns what is new, and whether the generation has ended.
func (c *choice) take() (api.Part, bool) {
	part := api.Part{Choice: c.index}
	tokens, ended := c.gen.Take()
	if len(tokens) > 0 && c.call.NoText {
		tokens, c.begun = nil, true
	}
	var text strings.Builder
	for _, o := range tokens {
		if c.stopped {
			break
		}
		c.begun = true
		c.n++
		part.IDs = append(part.IDs, o.Token)
		if c.call.Logprobs {
			c.waiting = append(c.waiting, waiting{c.made, c.log(o.Token, o.Logprobs, c.chars)})
		}
		made := c.detok.Push(c.text(o.Token))
		c.made += len(made)
		c.chars += api.Characters(made)
		shown, full := made, false
		if c.n >= c.call.Params.MinTokens { // before them no text ends it
			shown, c.stopped = c.stop.Push(made)
		}
		if c.calls != nil {
			shown, full = c.part(&part, c.calls.Push(shown))
			c.stopped = c.stopped || full
		}
		text.WriteString(shown)
		if c.stopped { // the text is complete: this is no abort
			c.gen.Abort(&room.Cause{Code: room.Done})
		}
	}
	part.Text = text.String()
	c.show(&part, false)
	return part, ended
}

// show gives part the logs of tokens whose text begins within what is shown.
func (c *choice) show(part *api.Part, all bool) {
	if c.shown += len(part.Text); c.calls != nil { // text of calls is not in Text
		c.shown = c.calls.Decided()
	}
	n := 0
	for n < len(c.waiting) && (all || c.waiting[n].at < c.shown) {
		part.Logs = append(part.Logs, c.waiting[n].log)
		n++
	}
	c.waiting = c.waiting[n:]
}

// finish returns the text that was held back, and why the choice ended.
func (c *choice) finish() (api.Part, api.Ending, *room.Cause) {
	cause, res := c.gen.Ending()
	c.cached = res.Cached
	part := api.Part{Choice: c.index}
	end := api.Ending{Finish: api.FinishStop}
	switch {
	case cause.Code != room.Done:
		return part, end, cause
	case c.stopped:
		if c.calls != nil {
			part.Text, _ = c.part(&part, c.calls.Flush())
			c.show(&part, false)
			end.Finish = c.finishReason(end.Finish)
		}
		if m := c.stop.Matched(); m != "" {
			end.Matched = m
		}
		return part, end, cause
	case c.call.NoText:
		end.Finish = api.FinishLength
		return part, end, cause
	case res.Finish == engine.FinishLength:
		end.Finish = api.FinishLength
	case res.Stop >= 0:
		end.Matched = res.Stop
	}
	tail, stopped := c.stop.Push(c.detok.Flush())
	tail += c.stop.Flush()
	if stopped {
		end = api.Ending{Finish: api.FinishStop, Matched: c.stop.Matched()}
	}
	if c.calls != nil {
		tail, _ = c.part(&part, append(c.calls.Push(tail), c.calls.Flush()...))
		end.Finish = c.finishReason(end.Finish)
	}
	part.Text = tail
	c.show(&part, !stopped)
	return part, end, cause
}

// log gives one position's log probabilities their text.
func (c *choice) log(t engine.Token, lp *engine.Logprobs, offset int) api.Log {
	l := api.Log{TokenLog: api.TokenLog{ID: t, Piece: c.p.piece(t, true), Log: api.NoLog}, Offset: offset}
	if lp == nil {
		return l
	}
	l.Log = lp.Own
	for _, x := range lp.Top {
		l.Top = append(l.Top, api.TokenLog{ID: x.Token, Piece: c.p.piece(x.Token, true), Log: x.Log})
	}
	return l
}

// promptLogs returns the log probabilities of the prompt's tokens that were
// asked for, once the first token exists.
func (c *choice) promptLogs() []api.Log {
	if c.call.PromptLogprobs == 0 {
		return nil
	}
	var detok chat.Detokenizer
	var out []api.Log
	scored := c.lead.Prompt()
	from := int(c.call.PromptFrom)
	chars := 0
	for i, t := range c.prompt {
		if i >= from {
			var lp *engine.Logprobs
			if j := i - max(from, 1); j >= 0 && j < len(scored) {
				lp = scored[j].Logprobs
			}
			out = append(out, c.log(t, lp, chars))
		}
		chars += api.Characters(detok.Push(c.p.piece(t, c.call.FullText)))
	}
	return out
}

// promptText returns the prompt as an echo has it.
func (c *choice) promptText() string {
	if text := c.call.Prompts()[c.index/c.call.N].Text; text != "" {
		return text
	}
	var detok chat.Detokenizer
	var b strings.Builder
	for _, t := range c.prompt {
		b.WriteString(detok.Push(c.p.piece(t, c.call.FullText)))
	}
	return b.String() + detok.Flush()
}

// echo returns the prompt as the first part of the text.
func (c *choice) echo() api.Part {
	return api.Part{Choice: c.index, Text: c.echoed, Logs: c.promptLogs()}
}
