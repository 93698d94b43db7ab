package worker

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func (s *served) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestAnAbortOfNobodySaysThatNobodyWasAborted(t *testing.T) {
	s := simulated(t)
	for _, body := range []string{`{"rid":"nobody"}`, `{"rids":["a","b"]}`, `{"abort_all":true}`} {
		if status, text := s.post("/abort_request", body); status != 200 || strings.TrimSpace(text) != `{"aborted":0}` {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestARequestIsFoundByTheIdOfItsAnswer(t *testing.T) {
	s := simulated(t)
	var a struct{ ID string }
	for path, body := range map[string]string{
		"/v1/completions":      `{"prompt":"x","max_tokens":2}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"x"}],"max_tokens":2}`,
	} {
		s.answer(path, body, &a)
		if status, text := s.get(t, "/debug/rooms/"+a.ID); status != 200 || !strings.Contains(text, a.ID[strings.Index(a.ID, "cmpl-")+5:]) {
			t.Errorf("%s: %d %s", a.ID, status, text)
		}
	}
}

func TestAWorkerNamesItsRoutesAndItsModel(t *testing.T) {
	s := simulated(t)
	for path, want := range map[string]int{"/": 200, "/v1/models/" + s.s.parts.Load().info.Model: 200, "/v1/models/x": 404, "/v1/chat/completion": 404, "/v1/chat/completions": 405} {
		status, text := s.get(t, path)
		if status != want || want != 200 && !strings.Contains(text, `{"error":{"message":"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if want == 405 && !strings.Contains(text, "POST /v1/chat/completions") {
			t.Errorf("%s: %s", path, text)
		}
	}
}
