package router

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestAClientThatLeavesEndsBothLegsInEveryPhase(t *testing.T) {
	for name, phase := range map[string]struct {
		p, d   func(http.ResponseWriter, *http.Request, *api.Call)
		events int // the client reads before it leaves
	}{
		"before prefill answers":        {hang, hang, 0},
		"after prefill, before decode":  {prefilled, hang, 0},
		"while decode streams":          {prefilled, streams(2, waits), 2},
		"while decode streams, p hangs": {hang, streams(2, waits), 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
				g.ps[0].set(phase.p)
				g.ds[0].set(phase.d)
				c, br := g.raw(streamBody)
				for n := 0; n < phase.events; {
					line, err := br.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(line, "data: ") {
						n++
					}
				}
				synctest.Wait()
				began := time.Now()
				c.Close()
				synctest.Wait()
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
				r := g.wantEnd("aborted", room.ClientGone, "client")
				g.wantAborted(g.ps[0], r.RID, r.Attempts[0].Room)
				g.wantAborted(g.ds[0], r.RID, r.Attempts[0].Room)
				g.wantUncharged()
			})
		})
	}
}

func TestAClientThatSentAByteTooManyIsNoticedByTheHeartbeat(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ds[0].set(streams(1, waits))
		c, br := g.raw(streamBody)
		if _, err := c.Write([]byte("G")); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "data: ") {
				break
			}
		}
		br.ReadString('\n')
		synctest.Wait()
		c.Close()
		time.Sleep(api.Heartbeat)
		synctest.Wait()
		r := g.wantEnd("aborted", room.ClientGone, "client")
		g.wantAborted(g.ds[0], r.RID, r.Attempts[0].Room)
	})
}

func TestADrainThatRunsOutAbortsOnBothWorkersAndSaysSo(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		g.ds[0].set(hang)
		done := make(chan answer, 1)
		g.wg.Go(func() { done <- g.post(streamBody) })
		synctest.Wait()
		g.cut(room.Because(room.DrainAbort, "leaving"))
		if a := <-done; a.status != 503 || a.code() != string(room.DrainAbort) {
			t.Errorf("%+v", a)
		}
		synctest.Wait()
		r := g.wantEnd("aborted", room.DrainAbort, "router")
		if len(r.Attempts) != 1 {
			t.Error("it was tried again")
		}
		g.wantAborted(g.ps[0], r.RID, r.Attempts[0].Room)
		g.wantAborted(g.ds[0], r.RID, r.Attempts[0].Room)
	})
}

func TestAClientThatLeavesDuringItsUploadReachesNoWorker(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		c, _ := g.net.dial(t.Context(), "", "router:80")
		io.WriteString(c, "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"text\":")
		synctest.Wait()
		c.Close()
		synctest.Wait()
		g.wantEnd("aborted", room.ClientGone, "client")
		if len(g.ps[0].bodies)+len(g.ds[0].bodies) > 0 {
			t.Error("a worker was asked")
		}
	})
}

func TestAClientThatReadsNothingDiesByItsWriteDeadline(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ds[0].set(streams(100, waits))
		c, _ := g.raw(streamBody)
		defer c.Close()
		time.Sleep(api.WriteTimeout + time.Millisecond)
		synctest.Wait()
		r := g.wantEnd("aborted", room.ClientGone, "client")
		g.wantAborted(g.ds[0], r.RID, r.Attempts[0].Room)
		g.wantUncharged()
	})
}

func TestTheDeadlineEndsARequestInEveryPhase(t *testing.T) {
	for name, leg := range map[string]func(http.ResponseWriter, *http.Request, *api.Call){"before the first byte": hang, "after it": streams(1, waits)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
				g.ps[0].set(hang)
				g.ds[0].set(leg)
				a := g.post(streamBody, TimeoutHeader, "7000")
				if a.took != 7*time.Second {
					t.Errorf("it took %v", a.took)
				}
				if started := name == "after it"; started != (a.status == 200) || !started && a.status != 504 || !strings.Contains(a.body, `"code":"deadline"`) || strings.Contains(a.body, "[DONE]") {
					t.Errorf("%+v", a)
				}
				if started := name == "after it"; started != strings.Contains(a.body, ": alive") {
					t.Errorf("heartbeats: %s", a.body)
				}
				r := g.wantEnd("timeout", room.Deadline, "router")
				synctest.Wait()
				g.wantAborted(g.ps[0], r.RID, r.Attempts[0].Room)
				g.wantAborted(g.ds[0], r.RID, r.Attempts[0].Room)
				g.wantUncharged()
			})
		})
	}
}

func TestThousandClientsThatVanishAtOnceLeaveNothing(t *testing.T) {
	const clients = 1000
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			if int64(c.Leg.Room)%2 == 0 {
				hang(w, r, c)
				return
			}
			streams(1, waits)(w, r, c)
		})
		conns := make([]io.Closer, clients)
		for i := range conns {
			c, br := g.raw(streamBody)
			conns[i] = c
			g.wg.Go(func() { io.Copy(io.Discard, br) })
		}
		synctest.Wait()
		running, _ := g.book.list(1 << 20)
		if len(running) != clients {
			t.Fatalf("%d are running", len(running))
		}
		before := g.net.dials["d0:80"]
		for _, c := range conns {
			c.Close()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		_, ended := g.book.list(1 << 20)
		seen := map[id.RID]bool{}
		for _, r := range ended {
			if r.Code != string(room.ClientGone) || seen[r.RID] {
				t.Fatalf("%+v", r)
			}
			seen[r.RID] = true
		}
		if len(seen) != clients || g.book.count != clients {
			t.Errorf("%d records", len(seen))
		}
		for _, f := range []*fake{g.ps[0], g.ds[0]} {
			if _, aborted := f.got(); len(aborted) != clients {
				t.Errorf("%s was told of %d aborts", f.addr, len(aborted))
			}
		}
		if opened := g.net.dials["d0:80"] - before; opened > 50 {
			t.Errorf("%d connections were opened for the aborts", opened)
		}
		g.wantUncharged()
		g.ps[0].set(prefilled)
		g.ds[0].set(streams(3, finishes))
		if a := g.post(streamBody); a.status != 200 {
			t.Errorf("afterwards: %+v", a)
		}
	})
}
