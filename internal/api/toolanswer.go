package api

// CallPart is what one call of an answer gains. A call's first part has its id
// and name; the arguments of all its parts, joined, are its arguments.
type CallPart struct {
	Index     int // of the call within its choice; they begin in this order
	ID, Name  string
	Arguments string
}

type functionBody struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type toolCallBody struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionBody `json:"function"`
}

type toolCallDelta struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionBody `json:"function"`
}

// calling is a call so far.
type calling struct {
	id, name  string
	arguments []byte
}

// message returns a choice as a message: beside calls the content is null where
// there is none.
func (c *choice) message() chatMessage {
	text := c.text.String()
	m := chatMessage{Role: "assistant", Content: &text}
	for _, t := range c.calls {
		m.Calls = append(m.Calls, toolCallBody{t.id, "function", functionBody{t.name, string(t.arguments)}})
	}
	if text == "" && m.Calls != nil {
		m.Content = nil
	}
	return m
}

// call adds to the choice's calls.
func (c *choice) call(p CallPart) {
	if p.Index == len(c.calls) {
		c.calls = append(c.calls, calling{id: p.ID, name: p.Name})
	}
	last := &c.calls[p.Index]
	last.arguments = append(last.arguments, p.Arguments...)
}

// chunks returns the chunks of a chat stream that say what a choice gained. The
// log probabilities are with the first.
func (a *Answer) chunks(p Part, logs bool) [][]byte {
	var out [][]byte
	if p.Text != "" || len(p.Calls) == 0 {
		out = append(out, a.textChunk(p, logs))
		p.Logs = nil
	}
	for _, c := range p.Calls {
		d := toolCallDelta{Index: c.Index, ID: c.ID, Function: functionBody{c.Name, c.Arguments}}
		if c.ID != "" {
			d.Type = "function"
		}
		out = append(out, encode(a.envelope(true, chunkChoice{Index: p.Choice, Delta: chatDelta{Calls: []toolCallDelta{d}}, Logprobs: newChatLogprobs(p.Logs, logs)})))
		p.Logs = nil
	}
	return out
}
