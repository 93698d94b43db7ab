// Package fetch holds what every download of ours needs: a lock between
// processes, a resumable HTTP download with a checksum, progress for people and
// for logs, and a way to run the user's own package clients.
//
// The caller owes a destination directory that exists, a checksum, and a context
// whose end is the end of the work; nothing here retries past it.
//
// It never leaves a file under its final name before its checksum is known to be
// right, never runs a shell, and leaves no goroutine behind.
package fetch
