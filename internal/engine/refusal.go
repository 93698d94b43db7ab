package engine

import "fmt"

// ConfigError says that what an operator asked for cannot work, however often it
// is tried: the configuration has to change.
type ConfigError struct{ Err error }

// Misconfigured returns a ConfigError with that message.
func Misconfigured(format string, args ...any) error {
	return &ConfigError{fmt.Errorf(format, args...)}
}

// Error is the message: what was asked for, why it cannot be, and what to do.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *ConfigError) Unwrap() error { return e.Err }

// NoHandOverError says that a model loads, but that its KV cannot be handed over,
// which was asked for. Of Info at least Model, Path, Arch and HandOver are set.
type NoHandOverError struct{ Info Info }

// Error names the model and the reason.
func (e *NoHandOverError) Error() string {
	return fmt.Sprintf("%s (architecture %s) cannot be handed over: %s", e.Info.Model, e.Info.Arch, e.Info.HandOver)
}
