package main

import (
	"log/slog"
	"os"

	"github.com/spf13/pflag"
)

// logFlags are the flags of what a server logs.
type logFlags struct {
	level   string
	verbose bool
}

func (l *logFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&l.level, "log-level", "info", "what to log: debug, info (every request's end), warn or error")
	fl.BoolVar(&l.verbose, "verbose", false, "log at debug level")
}

// logger returns the logger, which is the process's default from now on.
func (l *logFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, usagef("--log-level %s: use debug, info, warn or error", l.level)
	}
	if l.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	return log, nil
}
