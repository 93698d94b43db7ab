package bounds

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
	"github.com/tandem-llm/tandem/internal/router"
)

// once makes the router try a request on one pair only, so that its end is the limit's.
func once(c *router.Config) { c.Attempts = 1 }

// fails asks for one answer that must fail with a code, and says after how long.
func (f *fleet) fails(a ask, code room.Code) time.Duration {
	f.t.Helper()
	r := f.send(a)
	if r.code != string(code) {
		f.t.Errorf("it ended %d %s (%+v), want %s", r.status, r.code, f.last(), code)
	}
	return r.took
}

func TestDecodeLooksForASessionForFiveSecondsOrAQuarterOfWhatRemains(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{
		time.Minute: room.DefaultBootstrap, 20 * time.Second: room.DefaultBootstrap, 8 * time.Second: 2 * time.Second,
	} {
		t.Run(fmt.Sprint(deadline), func(t *testing.T) {
			inBubble(t, options{router: once}, func(t *testing.T, f *fleet) {
				f.net.blackhole(route{decodeIP + "1", prefillIP + "1", bootPort})
				if took := f.fails(ask{prompt: text(40, 1), deadline: deadline}, room.BootstrapTimeout); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
				f.net.heal()
				pass(2 * time.Second) // the question to the registry that hangs has its own limit
				f.recover("afterwards")
			})
		})
	}
}

func TestReadyWaitsForItsLegForFiveSecondsOrAQuarterOfWhatRemains(t *testing.T) {
	unwatched := func(c *router.Config) { once(c); c.HealthInterval = time.Minute } // its checks go the same way
	inBubble(t, options{router: unwatched}, func(t *testing.T, f *fleet) {
		f.canary("before")
		f.net.block(route{routerIP, prefillIP + "1", httpPort}, out)
		took := f.fails(ask{prompt: text(40, 1), deadline: time.Minute}, room.UnpairedTimeout)
		if took != room.DefaultReady {
			t.Errorf("it took %v, want %v", took, room.DefaultReady)
		}
		f.net.heal()
		f.recover("afterwards")
	})
}

func TestPublishedBytesThatNobodyFetchesFailTheirRoomAfterTenSeconds(t *testing.T) {
	inBubble(t, options{sim: slowEngine(), router: once}, func(t *testing.T, f *fleet) {
		f.canary("before")
		f.net.block(route{decodeIP + "1", prefillIP + "1", dataPort}, back)
		took := f.fails(ask{prompt: text(40, 1), deadline: time.Minute}, room.TransferStall)
		// The first chunk is published when it is computed, within the first library call.
		if lead := took - room.DefaultStall; lead < 0 || lead > 200*time.Millisecond {
			t.Errorf("it took %v, want %v and the time until the first chunk", took, room.DefaultStall)
		}
		f.net.heal()
		f.recover("afterwards")
	})
}
