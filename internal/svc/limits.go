package svc

import (
	"log/slog"
	"maps"
	"slices"
)

// LogLimits says in one line what bounds a process has, in the order of their names:
// whoever reads its log later sees with which it ran.
func LogLimits(log *slog.Logger, limits map[string]any) {
	var args []any
	for _, k := range slices.Sorted(maps.Keys(limits)) {
		args = append(args, k, limits[k])
	}
	log.Info("limits", args...)
}
