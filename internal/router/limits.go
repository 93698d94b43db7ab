package router

// limits are the bounds that requests and workers meet here: in the log at start, and
// in /get_server_info.
func (c Config) limits() map[string]any {
	return map[string]any{
		"deadline": c.DefaultDeadline.String(), "max_deadline": c.MaxDeadline.String(), "max_in_flight": c.MaxInFlight, "max_body_bytes": c.MaxBody,
		"body_timeout": c.BodyTimeout.String(), "write_timeout": c.WriteTimeout.String(), "attempts": c.Attempts, "acknowledgement_wait": c.AckWait.String(),
		"health_interval": c.HealthInterval.String(), "health_timeout": healthTimeout.String(), "suspect_after_checks": suspectAfter, "fence_after_checks": fenceAfter,
		"breaker_failures": breakerFailures, "breaker_first_pause": breakerFirst.String(), "breaker_longest_pause": breakerMost.String(),
		"pair_breaker_failures": pairFailures, "aborts_waiting_per_worker": maxAborts, "answer_bytes": maxWhole, "records": c.Records,
	}
}
