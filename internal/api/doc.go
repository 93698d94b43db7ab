// Package api is what goes over HTTP: the bodies of OpenAI's chat completions
// and completions and of SGLang's /generate, their answers as JSON and as
// server-sent events, the leg fields that the router adds, and the one table
// of errors.
//
// Callers owe it a body read to its end (ReadBody) before anything long:
// net/http does not notice a client that left before that. A handler that computes
// then Watches its connection, and calls what ReadBody gave it when it is done with
// the body. It never guesses:
// a field it does not know passes, a field it knows and cannot honour is a
// bad_request that names the field, the value and the limit.
package api
