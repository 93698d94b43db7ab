//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

// slack is how much later than its deadline a request may end.
const slack = time.Second

func TestADeadlineEndsALongGenerationInTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	const limit = 300 * time.Millisecond
	for _, c := range []struct {
		name   string
		prompt int
		whole  bool
	}{
		{"while decoding, streamed", 40, false},
		{"while decoding, whole", 40, true},
		{"while prefilling", 4000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := question{prompt: f.engine.prompt(c.prompt, 1), tokens: 2000, whole: c.whole, header: map[string]string{"X-Tandem-Timeout-Ms": strconv.Itoa(int(limit.Milliseconds()))}}
			asked := time.Now()
			a := ask(t.Context(), f.router.url, q)
			if err := a.honest(f.known(q)); err != nil {
				t.Fatal(err)
			}
			if a.code != string(room.Deadline) || a.done || !a.inBand && a.status != http.StatusGatewayTimeout {
				t.Errorf("want a deadline, as 504 or in band: %v", a)
			}
			if streaming := c.prompt < 100 && !c.whole; a.inBand != streaming {
				t.Errorf("in band %v, want %v: %v", a.inBand, streaming, a)
			}
			if took := a.ended.Sub(asked); took < limit || took > limit+slack {
				t.Errorf("ended after %v, the limit was %v", took, limit)
			}
			b.held(a.ended, slowStep(4)+freed)
		})
	}
	f.canary()
}

// leg adds to a question what the router adds.
func (f *fleet) leg(q question, rid id.RID, rm id.Room) question {
	q.members = map[string]any{"rid": rid, "bootstrap_host": "127.0.0.1", "bootstrap_port": f.ports.bootstrap, "bootstrap_room": rm}
	return q
}

func TestASecondLegOfALiveRoomIsRefusedAndTheFirstGoesOn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	q := f.leg(question{prompt: f.engine.prompt(1200, 1), tokens: 100}, id.NewRID(), id.NewRoom())
	prefilled, decoded := make(chan answer, 1), make(chan answer, 1)
	go func() { prefilled <- ask(t.Context(), f.prefill.url, q) }()
	go func() { decoded <- ask(t.Context(), f.decode.url, q) }()
	until(t, "the room is live on both workers", patience, func(ctx context.Context) error {
		now := f.scrape()
		for _, w := range f.workers() {
			if now[w.name].Sum("tandem_requests_live") == 0 {
				return fmt.Errorf("not on %s", w.name)
			}
		}
		return nil
	})
	for _, w := range f.workers() {
		ask(t.Context(), w.url, q).refusedWith(t, http.StatusConflict, string(room.DuplicateRoom))
		other := f.leg(q, id.NewRID(), q.members["bootstrap_room"].(id.Room))
		ask(t.Context(), w.url, other).refusedWith(t, http.StatusConflict, string(room.DuplicateRoom))
	}
	(<-decoded).is(t, f.known(q))
	if a := <-prefilled; a.status != http.StatusOK || a.code != "" {
		t.Errorf("prefill's leg: %v", a)
	}
	// A room is never used again, also after its end.
	for _, w := range f.workers() {
		ask(t.Context(), w.url, q).refusedWith(t, http.StatusConflict, string(room.DuplicateRoom))
	}
	b.held(time.Now(), freed)
}

func TestAClientCannotSetWhatOnlyTheRouterSets(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stormy())
	b := f.baseline()
	for field, value := range map[string]any{"bootstrap_room": 7, "bootstrap_host": "192.0.2.1", "bootstrap_port": 1,
		"Bootstrap_Room": 7, "tandem_remaining_ms": 1, "bootstrap_anything": nil} {
		a := ask(t.Context(), f.router.url, question{prompt: f.engine.prompt(10, 1), tokens: 1, members: map[string]any{field: value}})
		a.refusedWith(t, http.StatusBadRequest, string(room.BadRequest))
		if !strings.Contains(a.message, strings.ToLower(field)) {
			t.Errorf("%s: the message does not name the field: %s", field, a.message)
		}
	}
	b.held(time.Now(), freed)
	f.canary()
}

func TestWorkersWithDifferentLayoutsRefuseEachOtherNamingBoth(t *testing.T) {
	t.Parallel()
	s := stormy()
	s.prefill = append(s.prefill, "--sim-kv-bytes", "320")
	s.unfit = true
	f := newFleet(t, s)
	b := f.rest(f.workers()...)
	both := func(message string) {
		t.Helper()
		if !strings.Contains(message, "320 bytes") || !strings.Contains(message, "256 bytes") {
			t.Errorf("the message does not name both layouts: %s", message)
		}
	}
	q := question{prompt: f.engine.prompt(300, 1), tokens: 5}

	// The router knows both layouts from the workers and picks no such pair.
	until(t, "the router knows both workers", 3*time.Second, func(ctx context.Context) error {
		if a := ask(ctx, f.router.url, q); !strings.Contains(a.message, "layout") {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	a := ask(t.Context(), f.router.url, q)
	a.refusedWith(t, http.StatusServiceUnavailable, string(room.NoPair))
	both(a.message)

	// Another router may not: then the workers refuse each other.
	for range 2 {
		asked := time.Now()
		a := ask(t.Context(), f.decode.url, f.leg(q, id.NewRID(), id.NewRoom()))
		took := a.ended.Sub(asked)
		t.Logf("decode said after %v: %v", took.Round(time.Millisecond), a)
		a.refusedWith(t, http.StatusInternalServerError, string(room.LayoutMismatch))
		both(a.message)
		if took > room.DefaultBootstrap {
			t.Errorf("the error came after %v, no session may take %v", took, room.DefaultBootstrap)
		}
	}
	b.held(time.Now(), freed)
	b.settled(time.Now())
}

func TestAPortInUseEndsTheStartNamingIt(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	sim := simEngine{tokenTime: "1us", callTime: "1us"}.flags(t)
	for _, args := range [][]string{
		{"prefill", "--bootstrap-port", "0", "--port", port},
		{"prefill", "--bootstrap-port", port},
		{"prefill", "--bootstrap-port", "0", "--control-port", port},
		{"prefill", "--bootstrap-port", "0", "--data-port", port},
		{"decode", "--port", port},
		{"serve", "--port", port},
		{"router", "--prefill", "http://127.0.0.1:1,2", "--decode", "http://127.0.0.1:3", "--port", port},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			p := &process{name: args[0], args: args}
			if args[0] != "router" {
				p.args = append(p.args, sim...)
			}
			p.spawn(t)
			if code := p.await(t, 5*time.Second); code < 1 {
				t.Errorf("exit status %d, want a failure", code)
			}
			if said := p.log.String(); !strings.Contains(said, port) {
				t.Errorf("the message does not name port %s:\n%s", port, said)
			}
		})
	}
}
