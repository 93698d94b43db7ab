// Package bootstrap is how decode finds a prefill worker: a registry with the
// routes, keys and statuses of SGLang's bootstrap server, served by the prefill
// worker, and a client for decode. Two keys are ours: incarnation and
// control_addr; others ignore them.
//
// The registry is an http.Handler that never blocks. The caller owes Withdraw
// at drain, and serves it with Serve or mounts it in a server with timeouts of
// its own. The client never makes a caller wait longer than its context, and
// never retries by itself.
package bootstrap
