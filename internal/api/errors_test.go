package api

import (
	"flag"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/tandem-llm/tandem/internal/room"
)

var update = flag.Bool("update", false, "write generated files instead of comparing them")

func TestEveryCodeHasARow(t *testing.T) {
	if missing := missingRows(); len(missing) > 0 {
		t.Errorf("codes without a row: %v", missing)
	}
	if len(byCode) != len(rows) || len(rows) != len(room.Codes()) {
		t.Errorf("%d rows for %d codes", len(rows), len(room.Codes()))
	}
}

func TestTheErrorsPageIsCurrent(t *testing.T) {
	const path = "../../docs/errors.md"
	want := ErrorsPage()
	if *update {
		if err := os.MkdirAll("../../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/errors.md is not what the table says: run go generate ./internal/api")
	}
}

func TestACauseSurvivesTheTripThroughAnErrorBody(t *testing.T) {
	for _, code := range room.Codes() {
		if code == room.Done {
			continue
		}
		for _, detail := range []string{"", "top_p: 7 is above the limit of 1"} {
			in := &room.Cause{Code: code, Detail: detail}
			w := httptest.NewRecorder()
			WriteError(w, in)
			out := ParseError(w.Code, w.Body.Bytes())
			if *out != *in {
				t.Errorf("%v came back as %v", in, out)
			}
			if again := ParseError(0, ErrorJSON(out)); *again != *in {
				t.Errorf("%v came back the second time as %v", in, again)
			}
			if row := Lookup(code); row.RetryAfter > 0 && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", code)
			}
		}
	}
}

func TestABadRequestNamesItsParam(t *testing.T) {
	b := NewErrorBody(room.Because(room.BadRequest, "messages[0].role: %q is none of", "x"))
	if b.Param == nil || *b.Param != "messages[0].role" {
		t.Errorf("param %v", b.Param)
	}
	if b := NewErrorBody(room.Because(room.BadRequest, "the body is not JSON: x")); b.Param != nil {
		t.Errorf("param %q", *b.Param)
	}
}

func TestAForeignErrorBodyBecomesACauseThatFits(t *testing.T) {
	for _, x := range []struct {
		status int
		body   string
		want   room.Code
	}{
		{500, "boom", room.Bug},
		{503, "", room.Draining},
		{429, `{"error":{"message":"slow down","code":"rate"}}`, room.QueueFull},
		{404, "no such route", room.BadRequest},
		{504, "", room.TransferStall},
		{400, `{"error":{"message":"x","code":429}}`, room.BadRequest},
	} {
		if got := ParseError(x.status, []byte(x.body)); got.Code != x.want {
			t.Errorf("%d %s: %v, want %s", x.status, x.body, got, x.want)
		}
	}
}
