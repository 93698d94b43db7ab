package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tandem-llm/tandem/internal/id"
)

// Phase is how far a request has come, seen from both workers.
type Phase string

const (
	Queued       Phase = "queued"       // waits for memory, on decode or on prefill
	Prefilling   Phase = "prefilling"   // prefill computes, decode has nothing of it yet
	Transferring Phase = "transferring" // decode has some of the KV
	Decoding     Phase = "decoding"     // the hand-over is complete, decode generates
)

// Phases lists them in their order.
func Phases() []Phase { return []Phase{Queued, Prefilling, Transferring, Decoding} }

// Count is how many requests are in each phase.
type Count map[Phase]int

// Every says whether each phase has some.
func (c Count) Every() bool {
	return !slices.ContainsFunc(Phases(), func(p Phase) bool { return c[p] == 0 })
}

// String lists the phases in their order.
func (c Count) String() string {
	var words []string
	for _, p := range Phases() {
		words = append(words, fmt.Sprintf("%d %s", c[p], p))
	}
	return strings.Join(words, ", ")
}

// Record is one request as a worker's /debug/rooms shows it.
type Record struct {
	RID       id.RID  `json:"rid"`
	Room      id.Room `json:"room,string"`
	Live      bool    `json:"live"`
	Outcome   string  `json:"outcome"`
	Code      string  `json:"code"`
	Detail    string  `json:"detail"`
	Generated int     `json:"generated_tokens"`
	Steps     []struct {
		State string `json:"state"`
		On    string `json:"on"`
	} `json:"steps"`
}

// States of a room that are not its failed end.
var lively = []string{"Prealloc", "Bootstrapping", "Computing", "WaitingForInput", "Transferring", "Success"}

// State returns the last state the room was in before it failed, if it did.
func (r Record) State() string {
	for _, s := range slices.Backward(r.Steps) {
		if slices.Contains(lively, s.State) {
			return s.State
		}
	}
	return ""
}

// Records reads a worker's live records and the last n ended ones.
func Records(ctx context.Context, workerURL string, n int) ([]Record, error) {
	status, body, err := Get(ctx, fmt.Sprintf("%s/debug/rooms?n=%d", workerURL, n))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	var list struct {
		Rooms []Record `json:"rooms"`
	}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("rooms of %s: %w", workerURL, err)
	}
	return list.Rooms, nil
}

// Rooms is what the two sides' workers say about each room.
type Rooms struct{ Prefill, Decode map[id.Room]Record }

// Look reads the records of all workers, with the last n ended ones of each.
func Look(ctx context.Context, prefills, decodes []string, n int) (Rooms, error) {
	r := Rooms{map[id.Room]Record{}, map[id.Room]Record{}}
	for side, urls := range [][]string{prefills, decodes} {
		into := r.Prefill
		if side == 1 {
			into = r.Decode
		}
		for _, u := range urls {
			records, err := Records(ctx, u, n)
			if err != nil {
				return r, err
			}
			for _, rec := range records {
				if _, newer := into[rec.Room]; !newer {
					into[rec.Room] = rec
				}
			}
		}
	}
	return r, nil
}

// All returns every room that either side knows.
func (r Rooms) All() []id.Room {
	all := maps.Clone(r.Prefill)
	maps.Copy(all, r.Decode)
	return slices.Collect(maps.Keys(all))
}

// Phase returns how far a room has come, or had come when it was ended. The
// second result is false for a room that ran to its own end, or that no worker knows.
func (r Rooms) Phase(room id.Room) (Phase, bool) {
	p, d := r.Prefill[room], r.Decode[room]
	switch {
	case p.Outcome == "ok" && d.Outcome == "ok" || p.RID == "" && d.RID == "":
		return "", false
	case d.State() == "Success":
		return Decoding, d.Outcome != "ok"
	case d.State() == "Transferring":
		return Transferring, true
	case p.State() == "Computing" || p.State() == "Transferring":
		return Prefilling, true
	}
	return Queued, true
}

// Live counts the phases of the rooms that have not ended on both sides.
func (r Rooms) Live() Count {
	c := Count{}
	for _, room := range r.All() {
		if phase, ok := r.Phase(room); ok && (r.Prefill[room].Live || r.Decode[room].Live) {
			c[phase]++
		}
	}
	return c
}

// Of counts the phases of some rooms.
func (r Rooms) Of(rooms []id.Room) Count {
	c := Count{}
	for _, room := range rooms {
		if phase, ok := r.Phase(room); ok {
			c[phase]++
		}
	}
	return c
}
