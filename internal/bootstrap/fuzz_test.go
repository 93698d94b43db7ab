package bootstrap

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// FuzzRegistry sends any request to a registry with a rank of its own: decode workers
// must go on being told of that rank and of no other.
func FuzzRegistry(f *testing.F) {
	mine := Registration{RankIP: "10.0.0.1", RankPort: 9000, ControlAddr: "10.0.0.1:9000", Incarnation: 7}
	other, err := json.Marshal(Registration{RankIP: "6.6.6.6", RankPort: 6666, ControlAddr: "6.6.6.6:6666", Incarnation: 66})
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range []string{"/route", "/register_dp_rank", "/query_dp_ranks", "/health"} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			f.Add(method, path, "prefill_dp_rank=0", other)
		}
	}
	f.Add(http.MethodPost, "/register_dp_rank", "", []byte(`{"bootstrap_room":1,"dp_rank":0}`))
	f.Add(http.MethodPost, "/query_dp_ranks", "", []byte(`{"bootstrap_rooms":[1,-1,9223372036854775807]}`))
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte) {
		r := NewRegistry()
		if err := r.Register(mine); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(method, "http://registry/", bytes.NewReader(body))
		if err != nil {
			return // no method
		}
		req.URL.Path, req.URL.RawQuery = path, query
		r.ServeHTTP(httptest.NewRecorder(), req)

		w := httptest.NewRecorder()
		ask, err := http.NewRequest(http.MethodGet, "http://registry/route?"+routeOfRankZero, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.ServeHTTP(w, ask)
		a, err := parseAnswer(w.Body.Bytes(), "localhost")
		if w.Code != http.StatusOK || err != nil || a.ControlAddr != mine.ControlAddr || Hex(a.Incarnation) != mine.Incarnation {
			t.Fatalf("%d %s: %+v, %v", w.Code, w.Body, a, err)
		}
	})
}

// FuzzAnswer reads anything as a registry's answer: what is taken is an address that
// can be dialled.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"rank_ip":"10.0.0.1","rank_port":5}`))
	f.Add([]byte(`{"rank_ip":"::1","rank_port":65535,"incarnation":"00000000000000ff"}`))
	f.Add([]byte(`{"rank_ip":"a b","rank_port":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseAnswer(body, "10.0.0.9")
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(a.ControlAddr)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || host == "" {
			t.Fatalf("%q was taken from %q", a.ControlAddr, body)
		}
	})
}
