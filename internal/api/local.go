package api

import "strings"

// Local says, by a look at a body's members alone, whether one worker must
// compute all of it, as Call.Local does. It says so too often rather than too
// seldom: a call that needs no such treatment is served by one worker as well.
func Local(kind Kind, members []Member) bool {
	echo, logs, from := false, false, false
	for _, m := range members {
		list := len(m.Value) > 0 && m.Value[0] == '['
		if list {
			first := m.Value[skipSpace(m.Value, 1)]
			list = first == '"' || first == '['
		}
		switch {
		case list && (kind == Completion && m.Key == "prompt" || kind == Generate && (m.Key == "text" || m.Key == "input_ids")):
			return true
		case m.Key == "echo":
			echo = echo || m.Is("true")
		case m.Key == "logprobs" || m.Key == "return_logprob":
			logs = logs || !m.Is("null") && !m.Is("false")
		case m.Key == "logprob_start_len":
			from = from || !m.Is("null") && (!strings.HasPrefix(string(m.Value), "-") || !m.Is("-1"))
		}
	}
	switch kind {
	case Completion:
		return echo && logs
	case Generate:
		return from && logs
	}
	return false
}
