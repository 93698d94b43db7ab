// Package bounds tests the promise's times: a router and whole worker processes,
// with real net/http, gRPC and the real data plane between them, in one bubble of
// testing/synctest over a network in memory. The clock is the bubble's, so a bound
// of 300 s is tested in milliseconds, and to the nanosecond.
//
// The network can block a direction, delay it, cut it after a number of bytes,
// reset connections, and kill or freeze a host. What only a kernel or a signal can
// do is left to test/e2e.
//
// A run of chaos is chosen by TANDEM_CHAOS_SEED, how many by TANDEM_CHAOS_RUNS.
// The seed fixes the program of faults and requests; goroutines inside a bubble are
// still scheduled as they come. BOUNDS_LOG=1 with -v shows what every process logged.
package bounds
