// Package fault is a proxy that stands between a decode and a prefill worker and
// knows their frames. It fronts the bootstrap registry with the same HTTP contract,
// putting its own addresses where the rank's are, ends the control session on both
// sides and speaks gRPC to each, and reads the data plane frame by frame. To every
// frame, by plane, direction and type, a test can do what networks do, while the
// workers run: drop it, hold it, delay, repeat, reorder, shorten or corrupt it, close
// one direction or one side, reset the connection, or cut it within the frame.
//
// It counts what it did to what, so that a suite can demand that a moment it is about
// really came: a fault that met no frame was no test.
//
// The data plane's layout is written down here a second time, from the comment in
// transfer/tcp/wire.go: a proxy that shared its code would share its mistakes.
//
// The caller owes Close, which joins every goroutine. Heal ends all faults; what was
// lost stays lost.
package fault
