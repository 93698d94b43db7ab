// Package stats is the arithmetic of the benchmarks: medians, quantiles, and
// intervals of ratios that were measured in pairs.
package stats
