// Package pair is a rig for tests: a prefill and a decode worker, and a worker
// that serves alone, in one process, with real control and data connections
// over loopback and any engine backends. It holds no tests of its own rules; the
// suites that use it do.
package pair
