// Package router pairs a prefill and a decode worker for each request, sends
// both legs the client's body with the attempt's room, relays decode's answer
// and couples the fates of the two legs. It holds no model and no tokenizer.
//
// The router's record of a request is the truth about it: every accepted
// request ends in exactly one Finalize, and the record says who ended it and why.
// A client that leaves ends both legs, by exact id, over connections that are
// not the legs' own; that is no failure and trips no breaker.
//
// The caller serves Handler with api.NewServer while Run runs. The router never
// retries after the first byte, never ends a stream normally that decode did
// not end so, and waits for nothing without a deadline.
package router
