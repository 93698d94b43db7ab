// Package transfer is the data plane's contract: a Source (prefill) publishes
// chunks, a Sink (decode) takes them. A sub-package per transport implements
// both; package transfertest is the one suite that each of them passes.
//
// A transport knows bytes and leases. It knows neither a room's state nor any
// rule about it: those live once, in package room. Nobody writes into a peer's
// memory: the sink reads into buffers it chose itself.
package transfer
