// Package watch reads what Tandem's processes say about themselves, from
// outside: the gauges of /metrics, which it compares with a baseline, and the
// rooms of /debug/rooms, from which it tells in which phase each request is, or
// was when it ended. The demonstration and the process tests share it.
//
// The caller owes a context with a deadline for every call. It changes nothing
// in what it watches, but that a scrape is one short connection to each process.
package watch
