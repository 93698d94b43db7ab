package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tandem-llm/tandem/internal/id"
)

// Request is one request as the router's /debug/rooms shows it.
type Request struct {
	RID      id.RID `json:"rid"`
	Label    string `json:"label"` // the rid that the client sent
	Outcome  string `json:"outcome"`
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Who      string `json:"who"`
	Attempts []struct {
		Room id.Room `json:"room,string"`
	} `json:"attempts"`
}

// Room returns the room of the request's last attempt, 0 without one.
func (r Request) Room() id.Room {
	if len(r.Attempts) == 0 {
		return 0
	}
	return r.Attempts[len(r.Attempts)-1].Room
}

// Requests reads the router's records, live ones first, of requests whose label
// begins with a prefix. It looks at the last n ended ones.
func Requests(ctx context.Context, routerURL, prefix string, n int) ([]Request, error) {
	status, body, err := Get(ctx, fmt.Sprintf("%s/debug/rooms?limit=%d", routerURL, n))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	var list struct{ Live, Ended []Request }
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("requests of %s: %w", routerURL, err)
	}
	var found []Request
	for _, r := range append(list.Live, list.Ended...) {
		if strings.HasPrefix(r.Label, prefix) {
			found = append(found, r)
		}
	}
	return found, nil
}

// RoomsOf returns the rooms of requests.
func RoomsOf(requests []Request) []id.Room {
	rooms := make([]id.Room, 0, len(requests))
	for _, r := range requests {
		rooms = append(rooms, r.Room())
	}
	return rooms
}
