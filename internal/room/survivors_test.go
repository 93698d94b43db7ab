package room

// survivors are the mutants that no test can tell from the original, and why.
var survivors = map[string]string{
	"stray: old.State = Absent: left out":                      "nobody reads a record that the map no longer holds; the line says what it has become",
	"Next: at < b.timers[0].at: with <=":                       "of two equal times either is the next",
	"Sweep: b.timers[0].at <= b.now: always true":              "a timer that is taken up before its time finds nothing due and is set again",
	"Sweep: r.timerAt == t.at: always true":                    "a timer that an earlier one has replaced finds nothing due, or what the earlier one would have found",
	"arm: len(b.timers) > 2*len(b.rooms)+spareTimers: with >=": "one timer earlier or later is no difference",
	"Less: t[i].room < t[j].room: with <=":                     "two timers of one room and one time are the same",
	"perform: r.Cause == nil: always true":                     "no rule adopts a second cause: a room that has one is Parked or ended, and stays so",
}
