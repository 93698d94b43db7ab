package api

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

func answer(t *testing.T, kind Kind, body string, fn func(r *Responder)) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	fn(NewResponder(w, parse(t, kind, body), Answer{RID: "r1", Model: "m", Created: 7}, 0))
	return w
}

func TestAChatStreamIsRoleTextFinishUsageDone(t *testing.T) {
	w := answer(t, Chat, `{"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}}`, func(r *Responder) {
		r.Text("", 5) // half a character: nothing may be written yet
		if r.stream.Started() {
			t.Error("the stream began before there was text")
		}
		r.Text("é<", 6)
		r.Heartbeat()
		r.Finish(FinishStop, Usage{Prompt: 3, Cached: 1})
	})
	const head = `data: {"id":"chatcmpl-r1","object":"chat.completion.chunk","created":7,"model":"m","choices":[`
	want := head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n" +
		head + `{"index":0,"delta":{"content":"é<"},"logprobs":null,"finish_reason":null}]}` + "\n\n" + ": alive\n\n" +
		head + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}` + "\n\n" +
		head + `],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}}` + "\n\n" +
		"data: [DONE]\n\n"
	if w.Body.String() != want {
		t.Errorf("got\n%s\nwant\n%s", w.Body, want)
	}
}

func TestAGenerateStreamRepeatsTheTextSoFar(t *testing.T) {
	w := answer(t, Generate, `{"text":"x","stream":true}`, func(r *Responder) {
		r.Begin(Usage{Prompt: 2})
		r.Text("a", 1)
		r.Text("b", 2)
		r.Finish(FinishLength, Usage{Prompt: 2, Completion: 2})
	})
	want := `data: {"text":"a","output_ids":[1],"meta_info":{"id":"r1","finish_reason":null,"prompt_tokens":2,"completion_tokens":1,"cached_tokens":0}}

data: {"text":"ab","output_ids":[1,2],"meta_info":{"id":"r1","finish_reason":null,"prompt_tokens":2,"completion_tokens":2,"cached_tokens":0}}

data: {"text":"ab","output_ids":[1,2],"meta_info":{"id":"r1","finish_reason":{"type":"length","length":2},"prompt_tokens":2,"completion_tokens":2,"cached_tokens":0}}

data: [DONE]

`
	if w.Body.String() != want {
		t.Errorf("got\n%s", w.Body)
	}
}

func TestAWholeAnswerIsOneDocument(t *testing.T) {
	w := answer(t, Completion, `{"prompt":"x"}`, func(r *Responder) {
		r.Begin(Usage{})
		r.Text("a", 1)
		r.Finish(FinishLength, Usage{Prompt: 1})
	})
	want := `{"id":"cmpl-r1","object":"text_completion","created":7,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`
	if w.Body.String() != want || w.Header().Get("X-Tandem-Rid") != "r1" {
		t.Errorf("got %s", w.Body)
	}
}

func TestAnErrorIsAStatusBeforeTheFirstByteAndAnEventAfterIt(t *testing.T) {
	gone := room.Because(room.PeerGone, "prefill p1")
	body := `{"prompt":"x","stream":true}`
	w := answer(t, Completion, body, func(r *Responder) { r.Fail(gone); r.Finish(FinishStop, Usage{}) })
	if w.Code != 502 || !strings.HasPrefix(w.Body.String(), `{"error":{"message":"prefill p1. Send`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = answer(t, Completion, body, func(r *Responder) { r.Text("a", 1); r.Fail(gone); r.Finish(FinishStop, Usage{}) })
	if w.Code != 200 || !strings.Contains(w.Body.String(), `data: {"error":`) || strings.Contains(w.Body.String(), "[DONE]") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestEventsComeOutAsTheyWentInWhateverTheReads(t *testing.T) {
	const in = "data: a\n\n: hi\n\nevent: error\r\ndata: {\"error\":{}}\r\n\r\ndata:x\ndata: y\ndata: z\n\n\ndata: [DONE]\n\n"
	for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
		r := NewEventReader(wrap(strings.NewReader(in)), 0)
		var raw, data []string
		for {
			e, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			raw, data = append(raw, string(e.Raw)), append(data, e.Name+"|"+string(e.Data))
		}
		if strings.Join(raw, "") != in {
			t.Errorf("raw %q", raw)
		}
		if got := strings.Join(data, ","); got != `|a,|,error|{"error":{}},|x`+"\ny\nz"+`,|,|[DONE]` {
			t.Errorf("data %q", got)
		}
	}
}

func TestAStreamCutInsideAnEventIsNotAnEnd(t *testing.T) {
	r := NewEventReader(strings.NewReader("data: a\n\ndata: b\n"), 0)
	r.Next()
	if _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("err %v", err)
	}
	r = NewEventReader(strings.NewReader("data: "+strings.Repeat("a", 100)+"\n\n"), 64)
	if _, err := r.Next(); !errors.Is(err, ErrEventTooLong) {
		t.Errorf("err %v", err)
	}
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: b\r\n\r\n"), 3)
	f.Add([]byte("\n\n\r\n:\n\ndata"), 1)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		collect := func(r io.Reader) (raw []byte, data [][]byte, err error) {
			er := NewEventReader(r, 4096)
			for {
				e, err := er.Next()
				if err != nil {
					return raw, data, err
				}
				raw = append(raw, e.Raw...)
				data = append(data, bytes.Clone(e.Data))
			}
		}
		raw1, data1, err1 := collect(bytes.NewReader(in))
		raw2, data2, err2 := collect(iotest.OneByteReader(bytes.NewReader(in)))
		if !bytes.HasPrefix(in, raw1) {
			t.Fatal("bytes were changed")
		}
		if len(in) > 4096 { // where the limit is noticed depends on the reads
			return
		}
		if !bytes.Equal(raw1, raw2) || len(data1) != len(data2) || err1 != err2 {
			t.Fatalf("reads changed the events: %q %q %v %v", raw1, raw2, err1, err2)
		}
	})
}

func TestAReaderThatTakesNothingCostsOneWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		failed := make(chan error, 1)
		srv := NewServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ReadBody(w, r, 0, 0)
			s := NewSSE(w, time.Second)
			for s.Event(bytes.Repeat([]byte("x"), 1000)) == nil {
			}
			failed <- s.Start()
		}), nil)
		ln := &oneConn{conns: make(chan net.Conn, 1), done: make(chan struct{})}
		ln.conns <- server
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		began := time.Now()
		io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		if err := <-failed; err == nil {
			t.Error("the stream went on")
		}
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		client.Close()
		srv.Close()
		<-served
	})
}

type oneConn struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { close(l.done); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func TestABodyIsReadToItsEndOrRefused(t *testing.T) {
	for _, x := range []struct {
		body     string
		length   int64
		encoding string
		want     string
	}{
		{"abcd", 4, "", ""},
		{"abcd", -1, "", ""},
		{"abcde", 5, "", "5 bytes is above the limit of 4"},
		{"abcde", -1, "", "above the limit of 4 bytes"},
		{"ab", 2, "gzip", `Content-Encoding "gzip"`},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(x.body))
		r.ContentLength = x.length
		if x.encoding != "" {
			r.Header.Set("Content-Encoding", x.encoding)
		}
		body, _, cause := ReadBody(httptest.NewRecorder(), r, 4, 0)
		if x.want == "" && (cause != nil || string(body) != x.body) || x.want != "" && (cause == nil || !strings.Contains(cause.Detail, x.want)) {
			t.Errorf("%+v: %q %v", x, body, cause)
		}
	}
}
