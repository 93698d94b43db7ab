package room

import (
	"fmt"
	"strings"
)

//go:generate go test . -run TestTheProtocolDocumentIsCurrent -update

// Markdown returns docs/protocol.md: the tables as they are, and the words
// around them.
func Markdown() string {
	var w strings.Builder
	w.WriteString(protocolIntro)
	for _, side := range []Side{Prefill, Decode} {
		fmt.Fprintf(&w, "\n## The %s side\n\n", side)
		fmt.Fprintf(&w, "%d states × %d events, no cell empty. `=` keeps the state.\n", len(sideStates[side]), len(sideEvents[side]))
		for _, e := range sideEvents[side] {
			fmt.Fprintf(&w, "\n### %s\n\n%s\n\n| in | next | actions |\n|---|---|---|\n", e, eventWords[e])
			for _, row := range groupRows(side, e) {
				fmt.Fprintf(&w, "| %s | %s | %s |\n", row.in, row.next, row.do)
			}
		}
	}
	w.WriteString("\n## Actions\n\n| action | what it does |\n|---|---|\n")
	for a := nothing; a < numActions; a++ {
		fmt.Fprintf(&w, "| %s | %s |\n", actionNames[a], actionWords[a])
	}
	w.WriteString("\n## Causes\n\nThe first cause of a room wins and travels to the client.\n\n| code | outcome | counts as failure | retryable |\n|---|---|---|---|\n")
	for _, c := range sortedCodes() {
		cause := Cause{Code: c}
		fmt.Fprintf(&w, "| `%s` | %s | %v | %v |\n", c, cause.Outcome(), cause.Failure(), cause.Retryable())
	}
	w.WriteString(limitsMarkdown())
	return w.String()
}

type docRow struct{ in, next, do string }

// groupRows joins the states that an event treats alike.
func groupRows(side Side, e event) []docRow {
	var rows []docRow
	at := map[string]int{}
	for _, s := range sideStates[side] {
		c := tables[side][s][e]
		next := "="
		if c.next != stay {
			next = c.next.String()
		}
		acts := make([]string, len(c.do))
		for i, a := range c.do {
			acts[i] = actionNames[a]
		}
		row := docRow{next: next, do: strings.Join(acts, ", ")}
		key := row.next + "|" + row.do
		if i, ok := at[key]; ok {
			rows[i].in += ", " + s.String()
			continue
		}
		at[key] = len(rows)
		row.in = s.String()
		rows = append(rows, row)
	}
	return rows
}

func limitsMarkdown() string {
	return fmt.Sprintf(`
## Limits

| limit | default | why |
|---|---|---|
| T_ready | min(%v, ¼ of what remains) | READY without a leg, or a leg computing early without READY, holds memory or a name no longer |
| T_bootstrap | min(%v, ¼ of what remains) | decode holds cells while it looks for a session |
| T_stall | %v | published bytes that nobody fetches |
| T_park | %v | an abort waits this long for the room or request it came before |
| tombstones | %d rooms | late messages are answered from them; the oldest is forgotten first |
| strays per peer | %d rooms | rooms one peer can make us remember before their leg came |
`, DefaultReady, DefaultBootstrap, DefaultStall, DefaultPark, DefaultTombstones, DefaultPerPeer)
}
