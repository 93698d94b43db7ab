package router

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestRequestsAreAbortedByTheRidOfEitherSide(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ps[0].set(hang)
		g.ds[0].set(streams(1, waits))
		begin := func(label string) <-chan answer {
			done := make(chan answer, 1)
			g.wg.Go(func() { done <- g.post(`{"prompt":"x","stream":true,"rid":"` + label + `"}`) })
			synctest.Wait()
			return done
		}
		one, same, other := begin("mine"), begin("mine"), begin("m\\u0069nes")
		rid := ""
		for _, l := range g.book.matching(func(r *Record) bool { return r.Label == "mines" }) {
			rid = string(l.snapshot().RID)
		}
		for _, x := range []struct{ body, want string }{
			{`{"rid":"min"}`, `{"aborted":0}`},
			{`{"rid":"cmpl-mine"}`, `{"aborted":0}`},
			{`{"rid":"` + rid + `","bootstrap_room":7}`, `{"aborted":0}`},
			{`{"rid":"mine"}`, `{"aborted":2}`},
			{`{"rid":"mine"}`, `{"aborted":0}`},
			{`{"rids":["nobody","cmpl-` + rid + `"]}`, `{"aborted":1}`},
			{`{"abort_all":true}`, `{"aborted":0}`},
		} {
			if a := g.get("POST", "/abort_request", x.body); a.status != 200 || a.body != x.want {
				t.Errorf("%s: %+v", x.body, a)
			}
		}
		for _, done := range []<-chan answer{one, same, other} {
			if a := <-done; !strings.Contains(a.body, `"code":"abort_request"`) || strings.Contains(a.body, "[DONE]") {
				t.Errorf("%+v", a)
			}
			g.wantEnd("aborted", room.AbortRequest, "router")
		}
		time.Sleep(2 * abortGather)
		if _, aborted := g.ds[0].got(); len(aborted) != 3 {
			t.Errorf("decode was told of %v", aborted)
		}
		rest := begin("x")
		if a := g.get("POST", "/abort_request", `{"abort_all":true}`); a.body != `{"aborted":1}` {
			t.Errorf("%+v", a)
		}
		<-rest
		if a := g.get("POST", "/abort_request", `{}`); a.status != 400 {
			t.Errorf("%+v", a)
		}
		for key, want := range map[string]string{"mine": `[{"rid":"`, "mines": `{"rid":"` + rid, "cmpl-" + rid: `{"rid":"` + rid, "chatcmpl-" + rid: `{"rid":"` + rid, "min": "no such"} {
			if a := g.get("GET", "/debug/rooms/"+key, ""); !strings.HasPrefix(strings.TrimPrefix(a.body, `{"error":"`), want) {
				t.Errorf("%s: %s", key, a.body)
			}
		}
	})
}

func TestAModelThatNobodyServesIsRefusedNamingThoseThereAre(t *testing.T) {
	body := func(model string) string { return `{"prompt":"x","max_tokens":4,"model":` + model + `}` }
	inBubble(t, 1, 2, nil, func(t *testing.T, g *rig) {
		g.ds[1].tells(`{"role":"decode","model":"org/b","max_model_len":8192}`)
		time.Sleep(aCheck)
		for _, model := range []string{`"M"`, `"gpt-4o"`, `"` + strings.Repeat("x", 5000) + `"`} {
			a := g.post(body(model))
			if a.status != 404 || a.code() != string(room.ModelNotFound) || !strings.Contains(a.body, `\"m\", \"org/b\"`) || !strings.Contains(a.body, `"param":"model"`) || len(a.body) > 1000 {
				t.Errorf("%.20s: %+v", model, a)
			}
		}
		g.wantEnd("rejected", room.ModelNotFound, "client")
		for model, decode := range map[string]string{`"m"`: "http://d0:80", `"org/b"`: "http://d1:80", `""`: "", `null`: ""} {
			for range 3 {
				if a := g.post(body(model)); a.status != 200 || decode != "" && g.last().Attempts[0].Decode != decode {
					t.Errorf("%s: %+v by %+v", model, a, g.last())
				}
			}
		}
		if a := g.get("GET", "/v1/models", ""); strings.Count(a.body, `"id":"m"`) != 1 || strings.Count(a.body, `"id":"org/b"`) != 1 {
			t.Errorf("%+v", a)
		}
		if a := g.get("GET", "/v1/models/org/b", ""); a.status != 200 || !strings.Contains(a.body, `"max_model_len":8192`) {
			t.Errorf("%+v", a)
		}
		if a := g.get("GET", "/v1/models/c", ""); a.status != 404 || a.code() != string(room.ModelNotFound) {
			t.Errorf("%+v", a)
		}
	})
	inBubble(t, 1, 1, func(c *Config) { c.AnyModel = true }, func(t *testing.T, g *rig) {
		if a := g.post(body(`"gpt-4o"`)); a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
}

func TestWrongPathsAndMethodsGetTheErrorShapeAndTheRoutes(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		for _, x := range []struct {
			method, path, code string
			status             int
		}{
			{"GET", "/v1/chat/completions", "method_not_allowed", 405},
			{"DELETE", "/health", "method_not_allowed", 405},
			{"POST", "/v1/chat/completion", "not_found", 404},
			{"POST", "/", "not_found", 404},
		} {
			a := g.get(x.method, x.path, "")
			if a.status != x.status || a.code() != x.code || !strings.Contains(a.body, "POST /v1/chat/completions") || (x.status == 405) != (a.header.Get("Allow") != "") {
				t.Errorf("%s %s: %+v", x.method, x.path, a)
			}
		}
		if a := g.get("GET", "/", ""); a.status != 200 || !strings.Contains(a.body, "Tandem router") || !strings.Contains(a.body, "GET /health") {
			t.Errorf("%+v", a)
		}
		if a := g.get("HEAD", "/health", ""); a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
}

func TestTimeToFirstTokenIsOfStreamsAlone(t *testing.T) {
	inBubble(t, 1, 1, nil, func(t *testing.T, g *rig) {
		g.ds[0].set(func(w http.ResponseWriter, r *http.Request, c *api.Call) {
			time.Sleep(time.Millisecond)
			streams(1, finishes)(w, r, c)
		})
		g.post(wholeBody)
		g.post(streamBody)
		if a := g.get(http.MethodGet, "/metrics", ""); !strings.Contains(a.body, "tandem_router_ttft_seconds_count 1\n") || !strings.Contains(a.body, "tandem_router_usable_pairs 1\n") {
			t.Errorf("%s", a.body)
		}
	})
}
