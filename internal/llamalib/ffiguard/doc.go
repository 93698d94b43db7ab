// Package ffiguard says in words that libffi is missing.
//
// The binding's foreign-function package loads libffi while the program starts,
// before main, and panics if there is none: a page of stack that names no remedy.
// This package's own start-up comes earlier, looks for libffi where the dynamic
// loader does, and if it is not there writes one message and exits with status 1.
//
// It comes earlier because Go initializes, of the packages whose imports are all
// done, the first by import path, and this one imports nothing but syscall. It must
// stay so: any further import can put it behind the package it guards.
//
// It checks Linux only: elsewhere the foreign-function package brings libffi along.
// A loader that finds libffi in a place this package does not know of can be
// believed by setting TANDEM_SKIP_LIBFFI_CHECK=1.
package ffiguard
