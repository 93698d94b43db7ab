package house

// allowWallTime are the places that take a number of the wall clock. None of them
// subtracts it from another.
var allowWallTime = map[string]string{
	"internal/engine/llama/layout.go": "a file's modification time, as a part of a cache key",
	"internal/router/attempt.go":      "the request's time, for a chat template that writes the date",
	"internal/router/routes.go":       "when a model was loaded, as OpenAI lists it",
	"internal/router/record.go":       "the order of records on a debug page",
	"internal/svc/loop.go":            "a beat is one atomic word; it is shown to people and compared with nothing",
	"internal/worker/generate.go":     "the date in a chat template, and the field created of an answer",
	"internal/worker/info.go":         "the field created of a model",
}

// allowLong are files that are long for a reason.
var allowLong = map[string]string{}
