package router

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// dies is a leg that takes its worker's process along: its connections break and
// nobody listens any more.
func (f *fake) dies(w http.ResponseWriter, r *http.Request, c *api.Call) {
	f.srv.Close()
	panic(http.ErrAbortHandler)
}

// A retry after the death of one worker went back to its partner, which was dying as
// well, while a healthy pair stood by: 502, and 422 for an innocent client.
func TestARetryTakesAPairOfWorkersThatHadNoPartInTheFirstTry(t *testing.T) {
	inBubble(t, 2, 2, nil, func(t *testing.T, g *rig) {
		load := func(n int) { // of the healthy pair, so that the other is the first choice
			g.pool.mu.Lock()
			defer g.pool.mu.Unlock()
			g.pool.prefills[1].inFlight += n
			g.pool.decodes[1].inFlight += n
		}
		load(10)
		defer load(-10)
		g.ps[0].set(cut)
		g.ds[0].set(hang)
		if a := g.post(streamBody); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		r := g.last()
		if x, y := r.Attempts[0], r.Attempts[1]; x.Prefill != "http://p0:80" || x.Decode != "http://d0:80" || y.Prefill == x.Prefill || y.Decode == x.Decode {
			t.Errorf("%s with %s, then %s with %s", x.Prefill, x.Decode, y.Prefill, y.Decode)
		}
	})
}

func TestAfterADeathThereIsOneMoreTryForAPairThatHadNoPart(t *testing.T) {
	for prefills, want := range map[int]int{2: 502, 3: 200} {
		inBubble(t, prefills, prefills, nil, func(t *testing.T, g *rig) {
			tries := make(chan struct{}, 2)
			tries <- struct{}{}
			tries <- struct{}{}
			for _, p := range g.ps {
				p.set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
					select {
					case <-tries:
						cut(w, r, c)
					default:
						prefilled(w, r, c)
					}
				})
			}
			for _, d := range g.ds {
				d.set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
					select {
					case <-time.After(100 * time.Millisecond):
						streams(1, finishes)(w, r, c)
					case <-r.Context().Done():
					}
				})
			}
			if a := g.post(streamBody); a.status != want || len(g.last().Attempts) != prefills {
				t.Errorf("%d + %d workers: %d attempts, %+v", prefills, prefills, len(g.last().Attempts), a)
			}
		})
	}
}

// Other failures than a death get no third try: more multiplies a storm.
func TestWithoutADeathThereAreTwoTries(t *testing.T) {
	inBubble(t, 3, 3, nil, func(t *testing.T, g *rig) {
		for i := range g.ps {
			g.ps[i].set(fails(room.EngineFailed, "boom"))
			g.ds[i].set(hang)
		}
		if a := g.post(streamBody); a.status != 500 || len(g.last().Attempts) != 2 {
			t.Errorf("%d attempts, %+v", len(g.last().Attempts), a)
		}
	})
}

// A connection that breaks is no death: the process answers on the next one.
func TestOnlyWorkersThatReallyDiedMakeARequestPoisoned(t *testing.T) {
	for name, x := range map[string]struct {
		second func(f *fake) func(http.ResponseWriter, *http.Request, *api.Call)
		status int
		code   room.Code
	}{
		"two deaths":                        {func(f *fake) func(http.ResponseWriter, *http.Request, *api.Call) { return f.dies }, 422, room.Poisoned},
		"a death, then a broken connection": {func(*fake) func(http.ResponseWriter, *http.Request, *api.Call) { return cut }, 502, room.PeerGone},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, 1, nil, func(t *testing.T, g *rig) {
				tries := make(chan struct{}, 1)
				tries <- struct{}{}
				for _, p := range g.ps {
					second := x.second(p)
					p.set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
						select {
						case <-tries:
							p.dies(w, r, c)
						default:
							second(w, r, c)
						}
					})
				}
				g.ds[0].set(hang)
				if a := g.post(streamBody); a.status != x.status || a.code() != string(x.code) {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

func TestAWorkerThatRefusedTheRequestDidNotDieOfIt(t *testing.T) {
	inBubble(t, 2, 1, nil, func(t *testing.T, g *rig) {
		for i, p := range g.ps {
			p.set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
				g.ps[1-i].srv.Close()
				p.dies(w, r, c)
			})
		}
		g.ds[0].set(hang)
		if a := g.post(streamBody); a.code() != string(room.PeerGone) || len(g.last().Attempts) != 2 {
			t.Errorf("%d attempts, %+v", len(g.last().Attempts), a)
		}
	})
}

// A client's large answer opened decode's breaker as a breach of the protocol, and a
// large event counted as the worker's death.
func TestAnAnswerAboveTheRoutersLimitIsChargedToNobody(t *testing.T) {
	filled := bytes.Repeat([]byte("x"), 1<<20)
	huge := func(contentType string, mib int) func(http.ResponseWriter, *http.Request, *api.Call) {
		return func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			w.Header().Set("Content-Type", contentType)
			io.WriteString(w, "data: ")
			for range mib {
				if _, err := w.Write(filled); err != nil {
					return
				}
			}
			io.WriteString(w, "\n\n")
		}
	}
	for body, leg := range map[string]func(http.ResponseWriter, *http.Request, *api.Call){
		wholeBody:  huge("application/json", maxWhole>>20+1),
		streamBody: huge("text/event-stream", api.MaxEvent>>20+1),
	} {
		inBubble(t, 2, 2, nil, func(t *testing.T, g *rig) {
			for _, d := range g.ds {
				d.set(leg)
			}
			a := g.post(body)
			if a.status != 400 || a.code() != string(room.AnswerTooLarge) || !strings.Contains(a.body, "above the limit of ") {
				t.Errorf("%s: %+v", body, a)
			}
			if r := g.wantEnd("rejected", room.AnswerTooLarge, "decode"); len(r.Attempts) != 1 || r.Attempts[0].Charged != "" {
				t.Errorf("%d attempts: %+v", len(r.Attempts), r.Attempts[0])
			}
			g.wantUncharged()
		})
	}
}
