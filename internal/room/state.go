package room

import "fmt"

// Side is which half of the protocol a Book plays.
type Side uint8

const (
	Prefill Side = iota
	Decode
)

// String returns the side's name.
func (s Side) String() string {
	if s == Prefill {
		return "prefill"
	}
	return "decode"
}

// State is where a room is. Each side uses some of them; Poll gives the name
// that SGLang's KVPoll has for it.
type State uint8

const (
	Absent          State = iota // nothing is known of the room
	Parked                       // prefill: the room ended before its leg came
	Early                        // prefill: READY came before the leg
	Prealloc                     // decode: the leg is here, KV cells and import buffer are not
	Bootstrapping                // prefill: leg, neither resources nor READY; decode: resources, no session yet
	Computing                    // prefill: leg and resources, no READY yet: computing inside its arena share
	WaitingForInput              // prefill: leg and READY, no resources yet; decode: READY sent
	Transferring                 // prefill: leg, READY and resources; decode: the first chunk was taken
	Success                      // the hand-over is complete; terminal
	Failed                       // the room ended otherwise; terminal
	numStates
)

var stateNames = [numStates]string{"Absent", "Parked", "Early", "Prealloc", "Bootstrapping", "Computing",
	"WaitingForInput", "Transferring", "Success", "Failed"}

// String returns the state's name.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Terminal says whether a room in this state has ended: it is its own tombstone.
func (s State) Terminal() bool { return s == Success || s == Failed }

// Live says whether a room in this state is a request in progress.
func (s State) Live() bool { return s >= Prealloc && s < Success }

// Poll returns the KVPoll name of a state, "" for one that KVPoll has no name for.
func (s State) Poll() string {
	switch s {
	case Prealloc, Bootstrapping, Computing:
		return "Bootstrapping"
	case WaitingForInput, Transferring, Success, Failed:
		return stateNames[s]
	}
	return ""
}

// states of each side, in the order the documents list them.
var sideStates = [2][]State{
	Prefill: {Absent, Parked, Early, Bootstrapping, Computing, WaitingForInput, Transferring, Success, Failed},
	Decode:  {Absent, Prealloc, Bootstrapping, WaitingForInput, Transferring, Success, Failed},
}
