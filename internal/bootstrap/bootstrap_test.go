package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask returns the status and body of one request to the handler.
func ask(h http.Handler, method, target, body string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func route(dp, cp, tp, pp int) string {
	return fmt.Sprintf("/route?prefill_dp_rank=%d&prefill_cp_rank=%d&target_tp_rank=%d&target_pp_rank=%d", dp, cp, tp, pp)
}

// sglangPut is a body as SGLang's prefill sends it.
func sglangPut(tp, tpSize int) string {
	return fmt.Sprintf(`{"attn_tp_size":%d,"attn_tp_rank":%d,"attn_cp_size":1,"attn_cp_rank":0,"attn_dp_size":1,"attn_dp_rank":0,
	"pp_size":1,"pp_rank":0,"system_dp_size":1,"system_dp_rank":0,"rank_ip":"10.0.0.%d","rank_port":%d,"page_size":64,
	"kv_cache_dtype":"auto","load_balance_method":"follow_bootstrap_room","enable_dsa_cache_layer_split":false,"prefill_http_port":30000}`,
		tpSize, tp, tp+1, 4000+tp)
}

func TestTheRoutesAnswerAsSGLangs(t *testing.T) {
	r := NewRegistry()
	for _, c := range []struct {
		what, method, target, body string
		code                       int
		want                       string
	}{
		{"health", "GET", "/health", "", 200, "OK"},
		{"no rank yet", "GET", route(-1, -1, -1, -1), "", 503, "0 of 0"},
		{"first rank", "PUT", "/route", sglangPut(0, 2), 200, "OK"},
		{"the same rank again", "PUT", "/route", sglangPut(0, 2), 200, "OK"},
		{"one of two: a rank that registers twice is there once", "GET", route(-1, -1, -1, -1), "", 503, "1 of 2"},
		{"second rank", "PUT", "/route", sglangPut(1, 2), 200, "OK"},
		{"topology", "GET", route(-1, -1, -1, -1), "", 200,
			`{"attn_tp_size":2,"attn_cp_size":1,"dp_size":1,"pp_size":1,"page_size":64,"kv_cache_dtype":"auto","follow_bootstrap_room":true,"enable_dsa_cache_layer_split":false,"prefill_http_port":30000}`},
		{"a rank", "GET", route(0, 0, 1, 0), "", 200, `{"rank_ip":"10.0.0.2","rank_port":4001}`},
		{"no such rank", "GET", route(0, 0, 2, 0), "", 404, "no rank"},
		{"a parameter missing", "GET", "/route?prefill_dp_rank=0", "", 400, "prefill_cp_rank"},
		{"a parameter empty", "GET", route(0, 0, 0, 0) + "&", "", 200, "rank_ip"},
		{"another method", "POST", "/route", "{}", 405, "POST"},
		{"another topology", "PUT", "/route", sglangPut(0, 4), 400, "differs"},
		{"not JSON", "PUT", "/route", "NixlMsgGuard", 400, "bad body"},
		{"a rank beyond its size", "PUT", "/route", sglangPut(7, 2), 400, "rank 7 of 2"},
		{"no address", "PUT", "/route", `{"attn_tp_size":2,"attn_tp_rank":0}`, 400, "rank_ip"},
		{"sizes that overflow", "PUT", "/route", `{"attn_tp_size":4096,"attn_dp_size":4096,"pp_size":4096,"attn_cp_size":4096,"rank_ip":"a","rank_port":1}`, 400, "ranks"},
		{"a body too long", "PUT", "/route", strings.Repeat(" ", maxBody+1), 413, "longer"},
		{"a room's rank", "POST", "/register_dp_rank", `{"bootstrap_room":77,"dp_rank":3}`, 200, "OK"},
		{"a room without a rank", "POST", "/register_dp_rank", `{"bootstrap_room":77}`, 400, "dp_rank"},
		{"rooms' ranks", "POST", "/query_dp_ranks", `{"bootstrap_rooms":[77,78]}`, 200, `{"77":3}`},
		{"elsewhere", "GET", "/metrics", "", 404, ""},
	} {
		code, got := ask(r, c.method, c.target, c.body)
		if code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d %s; want %d %s", c.what, code, got, c.code, c.want)
		}
	}
	r.Withdraw()
	if code, _ := ask(r, "GET", route(0, 0, 0, 0), ""); code != 503 {
		t.Errorf("withdrawn: %d", code)
	}
	if code, _ := ask(r, "PUT", "/route", sglangPut(0, 2)); code != 503 {
		t.Errorf("registering after Withdraw: %d", code)
	}
	if code, _ := ask(r, "GET", "/health", ""); code != 200 {
		t.Errorf("health while draining: %d; decode would fail the rooms to be finished", code)
	}
}

func TestRoomsAreBounded(t *testing.T) {
	r := NewRegistry()
	for i := range 3 * maxRooms / 2 {
		ask(r, "POST", "/register_dp_rank", fmt.Sprintf(`{"bootstrap_room":%d,"dp_rank":0}`, i))
	}
	if n := len(r.rooms); n > maxRooms {
		t.Fatalf("%d rooms, at most %d", n, maxRooms)
	}
}

// served runs a handler on a real port until the test ends.
func served(t *testing.T, h http.Handler) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := Serve(ctx, lis, h); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return lis.Addr().String()
}

func client(t *testing.T, timeout time.Duration) *Client {
	c := NewClient(ClientConfig{Timeout: timeout})
	t.Cleanup(c.Close)
	return c
}

func TestDecodeFindsAPrefillWorkerAndItsNextIncarnation(t *testing.T) {
	reg := NewRegistry()
	addr := served(t, reg)
	c := client(t, 0)
	if err := c.Register(t.Context(), addr, Registration{RankIP: "0.0.0.0", RankPort: 9000, Incarnation: 0xA}); err != nil {
		t.Fatal(err)
	}
	first, err := c.Lookup(t.Context(), addr)
	if err != nil || first.ControlAddr != "127.0.0.1:9000" || first.Incarnation != 0xA {
		t.Fatalf("%+v, %v", first, err)
	}
	reg.Register(Registration{RankIP: "127.0.0.1", RankPort: 9001, Incarnation: 0xB, ControlAddr: "127.0.0.1:9002"})
	if a, _ := c.Lookup(t.Context(), addr); a != first {
		t.Errorf("not cached: %+v", a)
	}
	c.Drop(addr, first)
	second, err := c.Lookup(t.Context(), addr)
	if err != nil || second.ControlAddr != "127.0.0.1:9002" || second.Incarnation != 0xB {
		t.Fatalf("after Drop: %+v, %v", second, err)
	}
	// Guards against failures.md D1: a late failure of the old answer must not
	// drop the new one.
	c.Drop(addr, first)
	if a, _ := c.Lookup(t.Context(), addr); a != second {
		t.Errorf("the new answer was dropped for the old one's failure: %+v", a)
	}
}

func TestManyLookupsAskOnce(t *testing.T) {
	var asked atomic.Int32
	gate := make(chan struct{})
	addr := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-gate
		w.Write([]byte(`{"rank_ip":"10.0.0.1","rank_port":5}`))
	}))
	c := client(t, 0)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if a, err := c.Lookup(t.Context(), addr); err != nil || a.ControlAddr != "10.0.0.1:5" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	quick, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Lookup(quick, addr); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context ended: %v", err)
	}
	close(gate)
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestALookupThatCannotSucceedSaysWhyInTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dead, _ := net.Listen("tcp", "127.0.0.1:0")
	dead.Close()
	odd := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("hello")) }))
	empty := served(t, NewRegistry())
	c := client(t, 100*time.Millisecond)
	for what, addr := range map[string]string{
		"silent": silent.Addr().String(), "dead": dead.Addr().String(), "not a registry": odd, "no ranks": empty, "no port": "host",
	} {
		began := time.Now()
		_, err := c.Lookup(t.Context(), addr)
		if err == nil || !strings.Contains(err.Error(), addr) || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %v after %v", what, err, time.Since(began))
		}
	}
}

func TestAFailureIsForgotten(t *testing.T) {
	reg := NewRegistry()
	addr := served(t, reg)
	c := client(t, 0)
	if _, err := c.Lookup(t.Context(), addr); err == nil {
		t.Fatal("an empty registry answered")
	}
	reg.Register(Registration{RankIP: "10.0.0.1", RankPort: 5, Incarnation: Hex(id.Incarnation(3))})
	for began := time.Now(); ; {
		if _, err := c.Lookup(t.Context(), addr); err == nil {
			return
		} else if time.Since(began) > 5*time.Second {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestForeignBytesOnThePortHarmNothing(t *testing.T) {
	reg := NewRegistry()
	reg.Register(Registration{RankIP: "10.0.0.1", RankPort: 5})
	addr := served(t, reg)
	for i, b := range []string{"", "\x00", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00", strings.Repeat("A", 1<<20), "GET /route HTTP/1.1\r\n"} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		conn.Write([]byte(b))
		if _, err := client(t, 0).Lookup(t.Context(), addr); err != nil {
			t.Errorf("after %d: %v", i, err)
		}
		conn.Close()
	}
}

func TestAStrangerCannotReplaceARankOfThisProcess(t *testing.T) {
	r := NewRegistry()
	own := Registration{RankIP: "127.0.0.1", RankPort: 7001, PageSize: 256, KVCacheDtype: "f16"}
	if err := r.Register(own); err != nil {
		t.Fatal(err)
	}
	put := httptest.NewRecorder()
	r.ServeHTTP(put, httptest.NewRequest(http.MethodPut, "/route", strings.NewReader(`{"rank_ip":"127.0.0.1","rank_port":9,"page_size":256,"kv_cache_dtype":"f16"}`)))
	if put.Code != http.StatusConflict {
		t.Fatalf("the stranger's PUT was answered %d %s, want 409", put.Code, put.Body)
	}
	get := httptest.NewRecorder()
	r.ServeHTTP(get, httptest.NewRequest(http.MethodGet, "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0", nil))
	if !strings.Contains(get.Body.String(), "7001") {
		t.Fatalf("decode workers are sent to %s", get.Body)
	}
}
