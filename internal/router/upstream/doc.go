// Package upstream knows how each kind of worker is spoken to: what the router
// adds to a body for prefill and for decode, whether decode may be sent before
// prefill answers, and how a leg is aborted. It holds no connections and no
// state; package router does the sending.
package upstream
