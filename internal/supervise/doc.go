// Package supervise runs a set of child processes as one: it starts them, says when
// all are ready, starts again what dies, and ends them together.
//
// One goroutine, the one that calls Run, owns every child's state; all others only
// send it events. A child that dies is started again after a pause that doubles. A
// child that dies again and again before it was ever ready cannot be helped by that:
// then everything ends, with an error that names it.
//
// The caller owes a context whose end is the end of the children, and a Spec per
// child whose health address answers 200 once it can work.
//
// When Run returns, no child runs and none is a zombie. On Linux that holds even if
// this process is killed: the kernel kills the children with it. Each child has a
// process group of its own, so that a Ctrl-C on the terminal reaches this process
// alone and the children are ended in order. A child that writes more than the
// terminal takes loses lines, which are counted, and is never held up by it.
package supervise
