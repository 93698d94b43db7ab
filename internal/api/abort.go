package api

import (
	"encoding/json"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// AbortTarget names what POST /abort_request ends: the request with exactly
// this rid, and, if Room is not 0, only its attempt in that room. The room
// keeps a late or parked abort of one attempt away from the next, which has the
// same rid.
type AbortTarget struct {
	RID  id.RID
	Room id.Room
}

type abortBody struct {
	RID   id.RID    `json:"rid,omitempty"`
	Room  id.Room   `json:"bootstrap_room,omitempty"`
	RIDs  []id.RID  `json:"rids,omitempty"`
	Rooms []id.Room `json:"bootstrap_rooms,omitempty"` // as many as RIDs, or none
	All   bool      `json:"abort_all,omitempty"`
}

// AbortJSON returns the body of POST /abort_request for these targets.
func AbortJSON(targets []AbortTarget) []byte {
	if len(targets) == 1 {
		return encode(abortBody{RID: targets[0].RID, Room: targets[0].Room})
	}
	var b abortBody
	for _, t := range targets {
		b.RIDs = append(b.RIDs, t.RID)
		b.Rooms = append(b.Rooms, t.Room)
	}
	return encode(b)
}

// ParseAbort reads the body of POST /abort_request: {"rid"}, {"rids"}, either
// with its rooms, or {"abort_all":true}.
func ParseAbort(body []byte) (targets []AbortTarget, all bool, cause *room.Cause) {
	var b abortBody
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, false, room.Because(room.BadRequest, "the body is not an abort like {\"rid\":\"…\"}: %v", err)
	}
	if b.All {
		return nil, true, nil
	}
	if len(b.RIDs) > MaxAborts {
		return nil, false, room.Because(room.BadRequest, "rids: %d are above the limit of %d", len(b.RIDs), MaxAborts)
	}
	if len(b.Rooms) > 0 && len(b.Rooms) != len(b.RIDs) {
		return nil, false, room.Because(room.BadRequest, "bootstrap_rooms: %d rooms for %d rids", len(b.Rooms), len(b.RIDs))
	}
	if b.RID != "" {
		targets = append(targets, AbortTarget{b.RID, b.Room})
	}
	for i, rid := range b.RIDs {
		t := AbortTarget{RID: rid}
		if len(b.Rooms) > 0 {
			t.Room = b.Rooms[i]
		}
		if rid != "" {
			targets = append(targets, t)
		}
	}
	if len(targets) == 0 {
		return nil, false, room.Because(room.BadRequest, "rid: missing: name the request to abort")
	}
	return targets, false, nil
}
