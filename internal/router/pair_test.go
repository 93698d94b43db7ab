package router

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

// get asks the router.
func (g *rig) get(method, path, body string) answer {
	g.t.Helper()
	req, _ := http.NewRequest(method, "http://router:80"+path, strings.NewReader(body))
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
}

// tells changes what a fake says of itself; the router knows after its next check.
func (f *fake) tells(info string) {
	f.mu.Lock()
	f.info = info
	f.mu.Unlock()
}

const aCheck = 1100 * time.Millisecond

// Two workers of different models can never hand over. The router was healthy and
// every request failed.
func TestWorkersOfDifferentLayoutsAreNeverPaired(t *testing.T) {
	inBubble(t, 1, 2, nil, func(t *testing.T, g *rig) {
		g.ps[0].tells(`{"role":"prefill","bootstrap_port":8998,"layout":"aaaa","layout_words":"256 bytes"}`)
		g.ds[0].tells(`{"role":"decode","layout":"bbbb","layout_words":"320 bytes"}`)
		g.ds[1].tells(`{"role":"decode","layout":"aaaa","layout_words":"256 bytes"}`)
		time.Sleep(aCheck)
		for range 6 {
			if a := g.post(streamBody); a.status != 200 || g.last().Attempts[0].Decode != "http://d1:80" {
				t.Errorf("%+v by %+v", a, g.last())
			}
		}
		h := g.get("GET", "/health", "")
		var seen struct {
			Pairs int         `json:"usable_pairs"`
			Apart []pairState `json:"unusable_pairs"`
		}
		if json.Unmarshal([]byte(h.body), &seen); h.status != 200 || seen.Pairs != 1 || len(seen.Apart) != 1 || seen.Apart[0].Decode != "http://d0:80" {
			t.Errorf("%+v", h)
		}

		g.ds[1].tells(`{"role":"decode","layout":"aaaa","chunk":256}`)
		g.ps[0].tells(`{"role":"prefill","bootstrap_port":8998,"layout":"aaaa","layout_words":"256 bytes","chunk":128}`)
		time.Sleep(aCheck)
		a := g.post(streamBody)
		for _, want := range []string{"prefill 0 with decode 0", "aaaa (256 bytes)", "bbbb (320 bytes)", "prefill 0 with decode 1", "128 tokens", "256"} {
			if a.status != 503 || a.code() != string(room.NoPair) || !strings.Contains(a.body, want) {
				t.Errorf("%q is not in %+v", want, a)
			}
			if h := g.get("GET", "/health", ""); h.status != 503 || !strings.Contains(h.body, strings.TrimPrefix(want, "prefill 0 with ")) {
				if !strings.HasPrefix(want, "prefill 0") {
					t.Errorf("%q is not in %+v", want, h)
				}
			}
		}
	})
}

// A wrong --advertise lets every hand-over of one pair time out, while each of the
// two works with others.
func TestAPairThatNeverWorksLeavesRotationAndOneSuccessBringsItBack(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		for code, detail := range map[room.Code]string{room.BootstrapTimeout: "no session with 10.9.9.9:1234", room.LayoutMismatch: "a, b"} {
			g.ds[0].set(fails(code, detail))
			for range pairFailures {
				if a := g.post(streamBody); a.code() != string(code) {
					t.Errorf("%+v", a)
				}
			}
			a := g.post(streamBody)
			if a.status != 503 || a.code() != string(room.NoPair) || !strings.Contains(a.body, "3 failures in a row, the last: "+string(code)) || strings.Contains(a.body, "10.9.9.9") {
				t.Errorf("%+v", a)
			}
			if h := g.get("GET", "/health", ""); h.status != 503 || !strings.Contains(h.body, detail) {
				t.Errorf("/health does not tell the last error: %+v", h)
			}
			time.Sleep(breakerFirst)
			if a := g.post(streamBody); a.code() != string(code) { // the one trial
				t.Errorf("%+v", a)
			}
			time.Sleep(breakerFirst)
			if a := g.post(streamBody); a.status != 503 { // the pause has doubled
				t.Errorf("%+v", a)
			}
			time.Sleep(breakerFirst)
			g.ps[0].set(prefilled)
			g.ds[0].set(streams(1, finishes))
			for range 3 {
				if a := g.post(streamBody); a.status != 200 {
					t.Errorf("%+v", a)
				}
			}
			g.ps[0].set(hang)
		}
		g.ps[0].set(prefilled)
	})
}

// Found by the gauntlet at twenty times the load that can be served: requests whose
// deadline was nearly over had no time left to wait for anything, and their waits' ends
// opened the breaker of a pair that worked.
func TestAWaitThatHadNoTimeLeftIsChargedToNobody(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		for _, code := range []room.Code{room.BootstrapTimeout, room.UnpairedTimeout, room.TransferStall} {
			g.ds[0].set(fails(code, "after 3ms"))
			for range 2 * breakerFailures {
				if a := g.post(streamBody, TimeoutHeader, "400"); a.code() != string(code) {
					t.Errorf("%+v", a)
				}
				if by := g.last().Attempts[0].Charged; by != "" {
					t.Errorf("%s is charged for %s", by, code)
				}
			}
		}
		g.ps[0].set(prefilled)
		g.ds[0].set(streams(1, finishes))
		if a := g.post(streamBody); a.status != 200 {
			t.Errorf("the pair is not used: %+v", a)
		}
	})
}

func TestFailuresThatAreOldDoNotOpenABreaker(t *testing.T) {
	var b breaker
	now := time.Now()
	for range 10 * breakerFailures {
		b.failure(now, nil)
		now = now.Add(breakerMost + 1)
	}
	if !b.allows(now) {
		t.Error("failures an hour apart opened it")
	}
}

// A router asked a worker whose port was closed twice within milliseconds, and told
// the client "dial tcp 127.0.0.1:30002: connect: connection refused".
func TestAWorkerThatIsNotThereIsAskedOnceAndOutOfRotation(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		g.ds[0].srv.Close()
		before := g.net.dials["d0:80"]
		a := g.post(streamBody)
		if a.status != 503 || a.code() != string(room.NoPair) || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "decode 0: it could not be reached") {
			t.Errorf("%+v", a)
		}
		if strings.Contains(a.body, "d0:80") || strings.Contains(a.body, "dial") {
			t.Errorf("the client reads of addresses: %s", a.body)
		}
		if r := g.last(); len(r.Attempts) != 1 || !strings.Contains(r.Attempts[0].Detail, "d0:80") {
			t.Errorf("the record does not tell: %+v", r)
		}
		if dials := g.net.dials["d0:80"] - before; dials > 2 { // the leg's and the abort's
			t.Errorf("%d dials", dials)
		}
		if h := g.get("GET", "/health", ""); h.status != 503 || !strings.Contains(h.body, "connection refused") {
			t.Errorf("%+v", h)
		}
		g.wantUncharged() // a restart is not held against it
		g.ds[0].start(g)
		g.ps[0].set(prefilled)
		time.Sleep(aCheck)
		if a := g.post(streamBody); a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
}

func TestAnotherPairServesWhatADeadWorkerDoesNot(t *testing.T) {
	inBubble(t, 1, 2, nil, func(t *testing.T, g *rig) {
		g.ds[0].srv.Close()
		for range 4 {
			if a := g.post(streamBody); a.status != 200 {
				t.Errorf("%+v", a)
			}
			synctest.Wait()
		}
	})
}

func TestNoErrorOfANetworkReachesAClient(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		g.ds[0].set(fails(room.TransferLost, "the data connection broke: read tcp 10.0.0.1:5->10.0.0.2:6: i/o timeout"))
		if a := g.post(streamBody); a.code() != string(room.TransferLost) || strings.Contains(a.body, "10.0.0") || !strings.Contains(a.body, "the data connection between the workers broke") {
			t.Errorf("%+v", a)
		}
		if r := g.last(); !strings.Contains(r.Detail, "10.0.0.1") {
			t.Errorf("%+v", r)
		}
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) { cut(w, r, c) })
		if a := g.post(streamBody); a.code() != string(room.PeerGone) || strings.Contains(a.body, "d0") || !strings.Contains(a.body, "the connection to the decode worker broke") {
			t.Errorf("%+v", a)
		}
	})
}

func TestAWorkerThatComesBackAsAnotherProcessStartsWithoutBlame(t *testing.T) {
	w := &worker{}
	for range breakerFailures {
		w.breaker.failure(time.Now(), room.Because(room.PeerGone, "died"))
	}
	w.learn(serverInfo{Incarnation: "a"}, nil)
	if w.breaker.allows(time.Now()) {
		t.Fatal("the breaker closed without a restart")
	}
	p := &pool{pairs: map[pair]*breaker{{prefill: w}: {}, {decode: w}: {}, {}: {}}}
	if !w.learn(serverInfo{Incarnation: "b"}, nil) || !w.breaker.allows(time.Now()) {
		t.Fatal("the breaker is open for a process that failed nothing")
	}
	if p.forget(w); len(p.pairs) != 1 {
		t.Fatalf("%d pairs are remembered, want the one of others", len(p.pairs))
	}
}

func TestAWorkerWhoseLegsAnswerIsNotFencedForALateHealthCheck(t *testing.T) {
	inBubble(t, 1, 1, func(c *Config) { c.Attempts = 1 }, func(t *testing.T, g *rig) {
		time.Sleep(500 * time.Millisecond) // half way between two checks
		g.ps[0].set(prefilled)
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			resp := api.NewResponder(w, c, api.Answer{RID: c.Leg.RID, Model: "m"}, 0)
			for i := range 80 { // eight seconds: far beyond the fence
				time.Sleep(100 * time.Millisecond)
				if resp.Text("w ", int32(i)) != nil {
					return
				}
			}
			resp.Finish(api.FinishLength, api.Usage{Prompt: 1})
		})
		g.ds[0].mu.Lock()
		g.ds[0].health = func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		g.ds[0].mu.Unlock()
		if a := g.post(streamBody); a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Fatalf("a decode that streamed all the while was given up: %+v", a)
		}
	})
}
