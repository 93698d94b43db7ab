package worker

import (
	"crypto/rand"
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/engine"
)

// text returns a token's bytes in the answer. Where calls are looked for, a control
// token that is their markup is text too.
func (c *choice) text(t engine.Token) []byte {
	b := c.p.piece(t, c.call.FullText)
	if c.calls != nil && len(b) == 0 {
		if name := c.p.piece(t, true); chat.Markup(name) {
			return name
		}
	}
	return b
}

// part adds the calls of pieces to part and returns their text; full says that no
// more is wanted.
func (c *choice) part(part *api.Part, pieces []chat.Piece) (text string, full bool) {
	var b strings.Builder
	for _, x := range pieces {
		if x.Text != "" {
			b.WriteString(x.Text)
			continue
		}
		call := api.CallPart{Index: x.Call, Arguments: x.Arguments}
		if x.Begins {
			call.ID, call.Name = c.p.chat.Form().NewID(rand.Text), x.Name
		}
		part.Calls = append(part.Calls, call)
	}
	return b.String(), c.calls.Full()
}

// finishReason says what ended an answer that may have calls. One that was cut
// keeps its reason: its last call may lack its end.
func (c *choice) finishReason(f api.Finish) api.Finish {
	if f == api.FinishStop && c.calls.Calls() > 0 && !c.calls.Open() {
		return api.FinishCalls
	}
	return f
}
