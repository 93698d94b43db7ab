package fault

import (
	"fmt"

	"github.com/tandem-llm/tandem/internal/id"
)

// Plane is one of the three ways by which the workers talk.
type Plane uint8

// The planes. Registry's only frames are ROUTE, the question and its answer.
const (
	Registry Plane = iota
	Control
	Data
	planes
)

// String returns the plane's name in tables.
func (p Plane) String() string { return [...]string{"registry", "control", "data"}[p] }

// Dir is the direction of a frame.
type Dir uint8

// The directions.
const (
	ToPrefill Dir = iota
	ToDecode
	dirs
)

// String returns the direction's name in tables.
func (d Dir) String() string { return [...]string{"prefill", "decode"}[d] }

// Point is where faults happen: a kind of frame. Types are named as the wire's
// documents spell them: HELLO, READY, CHUNK, …; GARBAGE is what is no frame.
type Point struct {
	Plane Plane
	Dir   Dir
	Type  string
}

// String names the point in tables, e.g. "control READY to prefill".
func (p Point) String() string { return fmt.Sprintf("%v %s to %v", p.Plane, p.Type, p.Dir) }

// Frame is one frame on its way.
type Frame struct {
	Point
	Room id.Room // 0 in frames that are of no room
	Seq  uint32  // CHUNK, ACK
	Last bool    // CHUNK: the last of its hand-over
	Size int     // bytes, without what gRPC or HTTP put around them

	bytes []byte
}
