package api

//go:generate go test . -run TestTheErrorsPageIsCurrent -update

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-llm/tandem/internal/room"
)

// StatusClientGone is nginx's code for a client that closed its request; nobody
// reads it, but logs and metrics show it.
const StatusClientGone = 499

// Row is one line of the error table: all that follows from a cause's code.
type Row struct {
	Code       room.Code
	Status     int    // HTTP status before the first byte
	Type       string // OpenAI's error type
	RetryAfter int    // seconds for the Retry-After header; 0: none
	Means      string // what happened, one clause
	Advice     string // what the reader of the message may do, one sentence
}

// OpenAI's error types that the table uses.
const (
	typeInvalid    = "invalid_request_error"
	typeAborted    = "request_aborted"
	typeTimeout    = "timeout_error"
	typeOverloaded = "overloaded_error"
	typeServer     = "server_error"
)

// rows is the table. Keep it in the order a reader looks things up: the
// client's faults, aborts, time, load, peers, our own.
var rows = []Row{
	{room.Done, 200, "", 0, "the request ended without an error", ""},
	{room.BadRequest, 400, typeInvalid, 0, "the body is not what the API takes", "Correct what the message names."},
	{room.ModelNotFound, 404, typeInvalid, 0, "no worker serves this model", "GET /v1/models lists the models there are; a body without a model takes any."},
	{room.TooLong, 400, typeInvalid, 0, "prompt and max_tokens exceed the context: shorten the prompt or lower max_tokens", "The operator sets the context with --context."},
	{room.AnswerTooLarge, 400, typeInvalid, 0, "the answer is larger than the router relays", "Ask for less: lower max_tokens, n or top_logprobs, or stream the answer of an OpenAI route."},
	{room.Poisoned, 422, typeInvalid, 0, "two workers in a row died while they served this request", "Do not send it again; report it with its rid."},
	{room.DuplicateRoom, 409, typeInvalid, 0, "the room is live already", "Send every attempt with a new bootstrap_room."},
	{room.RoomTaken, 409, typeInvalid, 0, "another decode worker has this room", "Send every attempt with a new bootstrap_room."},
	{room.ClientGone, StatusClientGone, typeAborted, 0, "the client's connection ended", "Keep the connection open until the answer is complete."},
	{room.AbortRequest, StatusClientGone, typeAborted, 0, "somebody who may asked for an abort", "Send the request again if the abort was not meant."},
	{room.LegLost, StatusClientGone, typeAborted, 0, "the router's connection to a worker ended", "Send the request again; look at the router's log if it repeats."},
	{room.DrainAbort, 503, typeOverloaded, 1, "the worker is leaving service", "Send the request again."},
	{room.Deadline, 504, typeTimeout, 0, "the request's deadline passed", "Allow more time with X-Tandem-Timeout-Ms, or ask for fewer tokens."},
	{room.UnpairedTimeout, 504, typeTimeout, 1, "one worker waited for the other in vain", "Send the request again; check that both workers reach each other if it repeats."},
	{room.BootstrapTimeout, 504, typeTimeout, 1, "no session between decode and prefill came up in time", "Send the request again; check the bootstrap address and port if it repeats."},
	{room.TransferStall, 504, typeTimeout, 1, "the KV transfer stood still", "Send the request again; check the network between the workers if it repeats."},
	{room.AdmissionTimeout, 503, typeOverloaded, 2, "no memory became free in time", "Send the request again later, or add workers."},
	{room.QueueFull, 429, typeOverloaded, 1, "too many requests wait already", "Send the request again later, or add workers."},
	{room.Draining, 503, typeOverloaded, 1, "the worker takes no new requests", "Send the request again."},
	{room.NoPair, 503, typeOverloaded, 1, "no pair of prefill and decode workers is usable", "See /health of the router for each worker's reason."},
	{room.TransferLost, 502, typeServer, 1, "the data connection between the workers broke", "Send the request again."},
	{room.PeerGone, 502, typeServer, 1, "a worker died, froze or came back as another process", "Send the request again."},
	{room.Protocol, 502, typeServer, 1, "a worker broke the protocol", "Check that all workers and the router run compatible versions."},
	{room.TokenizationMismatch, 500, typeServer, 0, "the two workers tokenized the prompt differently", "Give both workers the same model file and template."},
	{room.LayoutMismatch, 500, typeServer, 0, "the two workers' KV layouts differ", "Give both workers the same model and KV settings."},
	{room.Corrupt, 500, typeServer, 0, "a chunk of KV failed its checks", "Send the request again; check memory and network if it repeats."},
	{room.CommitMismatch, 500, typeServer, 0, "the hand-over's count or digest differs", "Send the request again; report it if it repeats."},
	{room.EngineFailed, 500, typeServer, 0, "the engine refused a batch", "Send the request again; look at the worker's log if it repeats."},
	{room.Bug, 500, typeServer, 0, "a fault of Tandem's own", "Report it with the rid."},
}

var byCode = func() map[room.Code]Row {
	m := make(map[room.Code]Row, len(rows))
	for _, r := range rows {
		m[r.Code] = r
	}
	return m
}()

// Lookup returns a code's row. A code of a newer worker has the row of an
// internal fault, under its own name.
func Lookup(code room.Code) Row {
	r, ok := byCode[code]
	if !ok {
		r = byCode[room.Bug]
		r.Code = code
	}
	return r
}

// Label returns the code's metric label; all unknown codes share one, so that a
// peer cannot make labels.
func Label(code room.Code) string {
	if _, ok := byCode[code]; !ok {
		return "unknown"
	}
	return string(code)
}

// ErrorBody is OpenAI's error object.
type ErrorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

type errorEnvelope struct {
	Error ErrorBody `json:"error"`
}

// NewErrorBody returns what a client is told about a cause: what happened, with
// the value and the limit, and what to do.
func NewErrorBody(cause *room.Cause) ErrorBody {
	row := Lookup(cause.Code)
	message := cmp.Or(cause.Detail, row.Means)
	if row.Advice != "" {
		message += ". " + row.Advice
	}
	b := ErrorBody{Message: message, Type: row.Type, Code: string(cause.Code)}
	if cause.Code == room.BadRequest || cause.Code == room.ModelNotFound {
		b.Param = param(cause.Detail)
	}
	return b
}

// param returns the field that a detail begins with, or nil.
func param(detail string) *string {
	name, _, ok := strings.Cut(detail, ": ")
	if !ok || name == "" || strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '[' || r == ']')
	}) >= 0 {
		return nil
	}
	return &name
}

// ErrorJSON returns the JSON object {"error":{…}} of a cause.
func ErrorJSON(cause *room.Cause) []byte {
	return encode(errorEnvelope{NewErrorBody(cause)})
}

// WriteError answers with a cause, before any other byte was written. A nil
// cause is a fault of ours.
func WriteError(w http.ResponseWriter, cause *room.Cause) {
	if cause == nil || cause.Code == room.Done {
		cause = room.Because(room.Bug, "an error without a cause")
	}
	row := Lookup(cause.Code)
	if row.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(row.RetryAfter))
	}
	WriteJSON(w, row.Status, ErrorJSON(cause))
}

// ParseError reads the cause out of a worker's answer that is not 2xx. An
// answer in another form becomes a cause that fits its status.
func ParseError(status int, body []byte) *room.Cause {
	var e errorEnvelope
	if json.Unmarshal(body, &e) == nil {
		if _, ok := byCode[room.Code(e.Error.Code)]; ok {
			return causeOf(e.Error)
		}
		if e.Error.Message != "" {
			body = []byte(e.Error.Message)
		}
	}
	text := show(bytes.TrimSpace(body))
	switch {
	case status == http.StatusTooManyRequests:
		return room.Because(room.QueueFull, "the worker answered %d: %s", status, text)
	case status == http.StatusServiceUnavailable:
		return room.Because(room.Draining, "the worker answered %d: %s", status, text)
	case status == http.StatusGatewayTimeout:
		return room.Because(room.TransferStall, "the worker answered %d: %s", status, text)
	case status >= 400 && status < 500:
		return room.Because(room.BadRequest, "the worker answered %d: %s", status, text)
	}
	return room.Because(room.Bug, "the worker answered %d: %s", status, text)
}

// causeOf undoes NewErrorBody.
func causeOf(b ErrorBody) *room.Cause {
	row := Lookup(room.Code(b.Code))
	detail := strings.TrimSuffix(b.Message, ". "+row.Advice)
	if detail == row.Means {
		detail = ""
	}
	return &room.Cause{Code: room.Code(b.Code), Detail: detail}
}

// ParseErrorEvent reads the cause out of an in-band error event's data; ok says
// whether the data is one.
func ParseErrorEvent(data []byte) (cause *room.Cause, ok bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " "), []byte(`{"error":`)) {
		return nil, false
	}
	return ParseError(http.StatusInternalServerError, data), true
}

// ErrorsPage returns docs/errors.md.
func ErrorsPage() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from the table in internal/api/errors.go by go generate ./internal/api. -->\n" +
		"# Errors\n\n" +
		"Before the first byte an error has a real HTTP status and the body `{\"error\":{\"message\",\"type\",\"param\",\"code\"}}`. After it, a\n" +
		"stream ends with one event `data: {\"error\":{…}}` and without `data: [DONE]`; an answer that is not a stream has its connection\n" +
		"cut. The code is the metric label `code`; the outcome is the metric label `outcome`. The router itself tries again, on another\n" +
		"pair and before the first byte only, where *retried* says yes.\n\n" +
		"| code | status | type | outcome | retried | Retry-After | what happened | what to do |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		c := &room.Cause{Code: r.Code}
		retried, after := "no", ""
		if c.Retryable() {
			retried = "yes"
		}
		if r.RetryAfter > 0 {
			after = fmt.Sprintf("%d s", r.RetryAfter)
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s | %s | %s | %s |\n",
			r.Code, r.Status, r.Type, c.Outcome(), retried, after, r.Means, r.Advice)
	}
	return b.String()
}

// missingRows returns the codes without a row; a test wants none.
func missingRows() []room.Code {
	var missing []room.Code
	for _, c := range room.Codes() {
		if _, ok := byCode[c]; !ok {
			missing = append(missing, c)
		}
	}
	slices.Sort(missing)
	return missing
}
