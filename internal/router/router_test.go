package router

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestBothLegsGetTheSameBodyAndTheClientGetsDecodesAnswer(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		a := g.post(`{"prompt":"hello", "max_tokens":4,"stream":true,"rid":"mine","x":1.50}`)
		if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.Count(a.body, `"text":"w`) != 3 {
			t.Fatalf("%+v", a)
		}
		synctest.Wait() // this decode did not wait for prefill
		p, d := g.ps[0], g.ds[0]
		if !bytes.Equal(p.bodies[0], d.bodies[0]) || !bytes.HasPrefix(d.bodies[0], []byte(`{"prompt":"hello", "max_tokens":4,"stream":true,"rid":"td-`)) {
			t.Errorf("bodies\n%s\n%s", p.bodies[0], d.bodies[0])
		}
		leg := d.calls[0].Leg
		if leg.Room < 1 || leg.BootstrapHost != "p0" || leg.BootstrapPort != 8998 || leg.Remaining < 299*time.Second || leg.RequestTime != time.Now().Unix() {
			t.Errorf("leg %+v", leg)
		}
		r := g.wantEnd("ok", room.Done, "decode")
		if r.Label != "mine" || r.RID != leg.RID || r.Attempts[0].Room != leg.Room || r.Events != 4 || a.header.Get("X-Tandem-Rid") != string(leg.RID) {
			t.Errorf("record %+v", r)
		}
		if a := g.post(wholeBody); a.status != 200 || !json.Valid([]byte(a.body)) || g.last().Tokens != 3 {
			t.Errorf("%+v %+v", a, g.last())
		}
	})
}

// net/http stops watching a connection at the first byte that follows a request
// (field facts, appendix 3): only a write notices this client.
func TestAKeptConnectionThatWasClosedIsReplacedOnce(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		var n atomic.Int32
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			if n.Add(1) == 2 { // on the connection of the first request, before any byte
				cut(w, r, c)
			}
			streams(1, finishes)(w, r, c)
		})
		for range 2 {
			if a := g.post(streamBody); a.status != 200 {
				t.Errorf("%+v", a)
			}
			synctest.Wait()
		}
		if r := g.last(); len(r.Attempts) != 1 || n.Load() != 3 {
			t.Errorf("%d attempts, %d requests to decode", len(r.Attempts), n.Load())
		}
	})
}

func TestALegThatFailsEndsTheOtherAndTheClientLearnsAtOnce(t *testing.T) {
	for name, x := range map[string]struct {
		p, d    func(http.ResponseWriter, *http.Request, *api.Call)
		status  int
		code    room.Code
		outcome string
		who     string
		charged string
	}{
		"prefill's engine":    {fails(room.EngineFailed, "boom"), hang, 500, room.EngineFailed, "internal", "prefill", "http://p0:80"},
		"decode's engine":     {hang, fails(room.EngineFailed, "boom"), 500, room.EngineFailed, "internal", "decode", "http://d0:80"},
		"prefill dies":        {cut, hang, 502, room.PeerGone, "peer_lost", "prefill", "http://p0:80"},
		"decode dies":         {hang, cut, 502, room.PeerGone, "peer_lost", "decode", "http://d0:80"},
		"decode blames":       {hang, fails(room.PeerGone, "p0 fenced"), 502, room.PeerGone, "peer_lost", "decode", "http://p0:80"},
		"too long":            {hang, fails(room.TooLong, "9 of 8"), 400, room.TooLong, "rejected", "decode", ""},
		"decode's early end":  {prefilled, streams(0, func(*api.Responder, *http.Request) {}), 502, room.Protocol, "peer_lost", "decode", "http://d0:80"},
		"tokenizers disagree": {fails(room.TokenizationMismatch, ""), hang, 500, room.TokenizationMismatch, "internal", "prefill", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
				g.ps[0].set(x.p)
				g.ds[0].set(x.d)
				a := g.post(streamBody)
				if x.code == room.Protocol { // a decode that answers 200 with nothing
					x.outcome, x.status = "internal", 502
				}
				if a.status != x.status || a.code() != string(x.code) || a.took >= time.Second {
					t.Errorf("%+v", a)
				}
				r := g.wantEnd(x.outcome, x.code, x.who)
				if r.Attempts[0].Charged != x.charged {
					t.Errorf("charged %q, want %q", r.Attempts[0].Charged, x.charged)
				}
				time.Sleep(time.Second)
				other := g.ds[0]
				if x.who == "decode" {
					other = g.ps[0]
				}
				g.wantAborted(other, r.RID, r.Attempts[0].Room)
			})
		})
	}
}

func TestABrokenStreamEndsWithAnErrorEventAndNoDone(t *testing.T) {
	for name, then := range map[string]func(*api.Responder, *http.Request){
		"cut":         func(*api.Responder, *http.Request) { panic(http.ErrAbortHandler) },
		"ends early":  func(*api.Responder, *http.Request) {},
		"says so":     func(r *api.Responder, _ *http.Request) { r.Fail(room.Because(room.PeerGone, "p0")) },
		"is finished": func(r *api.Responder, q *http.Request) { finishes(r, q) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, 2, nil, func(t *testing.T, g *rig) {
				for _, d := range g.ds {
					d.set(streams(2, then))
				}
				a := g.post(streamBody)
				broken := name != "is finished"
				if strings.Contains(a.body, `data: {"error":{"message":`) != broken || strings.Contains(a.body, "[DONE]") == broken || a.status != 200 || a.err != nil {
					t.Errorf("%+v", a)
				}
				if broken {
					if r := g.wantEnd("peer_lost", room.PeerGone, "decode"); len(r.Attempts) != 1 {
						t.Error("it was tried again after the first byte")
					}
				}
			})
		})
	}
}

func TestAWholeAnswerThatBreaksIsNeverHalfSent(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		if a := g.post(wholeBody); a.status != 502 || a.code() != string(room.PeerGone) {
			t.Errorf("%+v", a)
		}
	})
}

func TestARetryTakesAnotherPairAndANewRoomAfterTheAbort(t *testing.T) {
	inBubble(t, 2, 2, nil, func(t *testing.T, g *rig) {
		first := make(chan id.Room, 1)
		var failing id.Room // written once, before first is closed
		var once sync.Once
		for _, p := range g.ps {
			p.set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
				once.Do(func() { failing = c.Leg.Room; close(first) })
				if c.Leg.Room == failing {
					fails(room.EngineFailed, "boom")(w, r, c)
					return
				}
				prefilled(w, r, c)
			})
		}
		for _, d := range g.ds {
			d.set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
				<-first
				if c.Leg.Room == failing {
					hang(w, r, c)
					return
				}
				streams(3, finishes)(w, r, c)
			})
		}
		if a := g.post(streamBody); a.status != 200 || !strings.Contains(a.body, "[DONE]") {
			t.Fatalf("%+v", a)
		}
		r := g.wantEnd("ok", room.Done, "decode")
		if len(r.Attempts) != 2 || r.Attempts[0].Room == r.Attempts[1].Room || r.Attempts[0].Prefill == r.Attempts[1].Prefill || r.Attempts[0].Code != string(room.EngineFailed) {
			t.Errorf("%+v %+v", r.Attempts[0], r.Attempts[1])
		}
	})
}

func TestARetryWaitsForTheAbortButNotForLong(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		release := make(chan struct{})
		inner := g.ds[0].srv.Handler
		g.ds[0].srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/abort_request" {
				<-release
			}
			inner.ServeHTTP(w, r)
		})
		g.ps[0].set(fails(room.EngineFailed, "boom"))
		g.ds[0].set(hang)
		if a := g.post(streamBody); a.status != 500 || a.took != DefaultAckWait {
			t.Errorf("it took %v: %+v", a.took, a)
		}
		close(release)
	})
}

func TestARequestThatTwoWorkersDiedOfIsPoisoned(t *testing.T) {
	inBubble(t, 3, 1, nil, func(t *testing.T, g *rig) {
		for _, p := range g.ps {
			p.set(p.dies)
		}
		g.ds[0].set(hang)
		if a := g.post(streamBody); a.status != 422 || a.code() != string(room.Poisoned) {
			t.Errorf("%+v", a)
		}
	})
}

func TestWithoutAPairTheAnswerSaysWhyForEachWorker(t *testing.T) {
	inBubble(t, 1, 2, nil, func(t *testing.T, g *rig) {
		g.ps[0].srv.Close()
		g.ds[0].mu.Lock()
		g.ds[0].info = `{"role":"decode","draining":true}`
		g.ds[0].mu.Unlock()
		time.Sleep(1100 * time.Millisecond)
		a := g.post(streamBody)
		if a.status != 503 || a.code() != string(room.NoPair) || a.header.Get("Retry-After") == "" ||
			!strings.Contains(a.body, "prefill 0: it could not be reached") || !strings.Contains(a.body, "decode 0: draining") || strings.Contains(a.body, ":80") {
			t.Errorf("%+v", a)
		}
		resp, err := g.client.Get("http://router:80/health")
		if err != nil || resp.StatusCode != 503 {
			t.Errorf("health: %v %v", resp, err)
		}
		resp.Body.Close()
		g.ps[0].start(g)
		time.Sleep(1100 * time.Millisecond)
		if a := g.post(streamBody); a.status != 200 {
			t.Errorf("after prefill came back: %+v", a)
		}
	})
}

func TestBodiesWithFieldsOfTheRouterAreRejected(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		for _, body := range []string{`{"prompt":"x","bootstrap_room":1}`, `{"prompt":"x","rid":[1]}`, `{"prompt"`, ``} {
			if a := g.post(body); a.status != 400 || a.code() != string(room.BadRequest) {
				t.Errorf("%s: %+v", body, a)
			}
		}
		if a := g.post(streamBody, TimeoutHeader, "soon"); a.status != 400 {
			t.Errorf("%+v", a)
		}
		if len(g.ps[0].bodies) > 0 {
			t.Error("a worker was asked")
		}
	})
}

func TestABreakerOpensForTheGuiltyWorkerAndClosesByOneSuccess(t *testing.T) {
	inBubble(t, 2, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		g.ps[0].set(fails(room.EngineFailed, "boom"))
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			select { // room for prefill to fail first
			case <-r.Context().Done():
			case <-time.After(100 * time.Millisecond):
				streams(1, finishes)(w, r, c)
			}
		})
		failed := 0
		for range 40 {
			if a := g.post(streamBody); a.status != 200 {
				failed++
			}
		}
		if failed != breakerFailures && failed != breakerFailures+1 { // 40 take 4 s: at most one trial
			t.Errorf("%d requests failed before the breaker opened", failed)
		}
		g.ps[0].set(prefilled)
		time.Sleep(breakerMost)
		for range 10 {
			if a := g.post(streamBody); a.status != 200 {
				t.Errorf("%+v", a)
			}
		}
		g.wantUncharged()
	})
}

func TestAFrozenWorkerIsSuspectByThreeSecondsAndFencedByFive(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		time.Sleep(500 * time.Millisecond) // half way between two checks
		g.ps[0].set(prefilled)
		g.ds[0].set(hang)
		frozen := time.Now()
		g.ds[0].mu.Lock()
		g.ds[0].health = func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		g.ds[0].mu.Unlock()
		done := make(chan answer, 1)
		g.wg.Go(func() { done <- g.post(streamBody) })
		time.Sleep(3 * time.Second)
		if a := g.post(streamBody); a.status != 503 {
			t.Errorf("after 3 s: %+v", a)
		}
		a := <-done
		if took := time.Since(frozen); took > 5*time.Second || a.status != 502 || a.code() != string(room.PeerGone) {
			t.Errorf("it took %v: %+v", took, a)
		}
	})
}

func TestEveryRouteOfThePeoplesSideAnswers(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.post(streamBody)
		r := g.last()
		for path, want := range map[string]string{
			"/livez": `"alive":true`, "/health": `"healthy"`, "/v1/models": `"id":"m"`, "/get_server_info": `"bootstrap_port":8998`,
			"/debug/rooms":                                string(r.RID),
			"/debug/rooms/" + string(r.RID):               r.Attempts[0].Room.String(),
			"/debug/rooms/" + r.Attempts[0].Room.String(): string(r.RID),
			"/debug/rooms/nothing":                        "no such rid",
			"/metrics":                                    `tandem_router_requests_total{code="done",outcome="ok"} 1`,
		} {
			resp, err := g.client.Get("http://router:80" + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !strings.Contains(string(body), want) {
				t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			}
		}
	})
}

func TestARequestThatOneWorkerMustComputeGoesToDecodeAlone(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		const body = `{"prompt":"hello","max_tokens":4,"echo":true,"logprobs":1}`
		if a := g.post(body); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		p, d := g.ps[0], g.ds[0]
		if len(p.bodies) != 0 || len(d.bodies) != 1 || string(d.bodies[0]) != body {
			t.Fatalf("prefill got %q, decode %q; want the client's own body at decode alone", p.bodies, d.bodies)
		}
		g.wantEnd("ok", room.Done, "decode")
	})
}
