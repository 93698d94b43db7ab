package worker

import (
	"maps"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/control"
	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/transfer"
)

// limits are the bounds that requests and peers meet on this worker: in its log at
// start, and in /get_server_info. What has no hand-over has no bounds of one.
func (s *Server) limits() map[string]any {
	all := map[string]any{
		"max_queue": s.cfg.MaxQueue, "max_body_bytes": api.DefaultMaxBody, "drain_timeout": s.cfg.DrainTimeout.String(),
	}
	if s.cfg.Role == Serve {
		return all
	}
	maps.Copy(all, map[string]any{
		"ready_timeout": room.DefaultReady.String(), "bootstrap_timeout": room.DefaultBootstrap.String(), "stall_timeout": room.DefaultStall.String(),
		"abort_parked": room.DefaultPark.String(), "tombstones": room.DefaultTombstones, "early_rooms_per_peer": room.DefaultPerPeer,
		"lease_of_the_gone": transfer.Lease.String(), "leave_notice": LeaveNotice.String(),
		"suspect_after": (control.SuspectAfter + control.PingEvery).String(), "fence_after": (control.FenceAfter + control.PingEvery).String(),
		"outbox_bytes": control.DefaultOutbox, "write_timeout": control.WriteTimeout.String(), "garbage_budget": control.GarbageBudget,
		"sessions": control.DefaultMaxSessions,
	})
	return all
}
