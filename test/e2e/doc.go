// Package e2e tests Tandem's processes from outside: it builds the executable,
// starts a router, a prefill and a decode worker as child processes, and sends
// them requests, signals, vanishing clients and garbage.
//
// Every test ends with the same question: is each gauge of every process back
// where it was, and is the next request served? Texts are compared exactly: the
// simulated engine's follow from the prompt alone (sim.Expect), the real
// engine's are compared with what the same processes said before.
//
// Nothing here sleeps. Waiting is for a gauge, a record or a process, with a
// deadline; where time itself is the stimulus (a process stopped for 8 s) a timer
// says so. A child that is left at the end fails the run.
//
// With TANDEM_E2E_BINARY the tests run that executable instead of building one,
// with TANDEM_E2E_BUILD its words are given to go build, e.g. -race.
package e2e
