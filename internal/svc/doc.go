// Package svc starts goroutines. It is the only place of ours with a go
// statement: everything that runs is started by Group.Go (a loop that lives as
// long as its component) or Group.Task (work that ends by itself, such as one
// connection), is supervised, beats, and is joined by Group.Wait.
//
// A panic never ends the process: a loop is restarted with a growing pause, a
// task ends alone; both are counted and logged. A loop that keeps dying is
// reported dead by Loops, for health to see.
package svc
