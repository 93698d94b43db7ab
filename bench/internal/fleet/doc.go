// Package fleet runs the systems that the benchmarks compare, as child processes
// on CPUs that it chooses: tandem serve, a pair behind a router, llama.cpp's own
// server. All listen on free ports of this machine. They end with Stop, with the
// context, and on Linux with the benchmark itself, whatever ends it.
package fleet
