package bounds

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tandem-llm/tandem/internal/engine/sim"
)

// ask is one request.
type ask struct {
	prompt   string
	tokens   int           // max_tokens; 0: 4
	deadline time.Duration // 0: the router's default
	whole    bool          // not a stream
}

// text is a prompt of n tokens, BOS included, that has salt in its beginning.
func text(n, salt int) string {
	s := fmt.Sprintf("%d %s", salt, strings.Repeat("tandem ", n/7+1))
	return s[:n-1]
}

func (a ask) max() int {
	if a.tokens == 0 {
		return 4
	}
	return a.tokens
}

func (a ask) body() string {
	b, _ := json.Marshal(map[string]any{"prompt": a.prompt, "max_tokens": a.max(), "stream": !a.whole, "temperature": 0})
	return string(b)
}

// expect is the right text.
func (a ask) expect(c sim.Config) string {
	b, err := sim.New(c)
	if err != nil {
		panic(err)
	}
	tokens, err := b.Tokenizer().Encode(a.prompt, false, true)
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for _, t := range sim.Expect(c, tokens, a.max()) {
		out.Write(b.Tokenizer().Piece(t))
	}
	return out.String()
}

// answer is what the client saw of one request.
type answer struct {
	rid    string
	status int
	code   string // of the error
	text   string
	done   bool // it ended as a finished answer does
	err    error
	took   time.Duration
}

// send asks the router and reads to the end.
func (f *fleet) send(a ask) (r answer) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	req, err := http.NewRequest(http.MethodPost, "http://"+routerIP+":80/v1/completions", strings.NewReader(a.body()))
	if err != nil {
		return answer{err: err}
	}
	if a.deadline > 0 {
		req.Header.Set("X-Tandem-Timeout-Ms", fmt.Sprint(a.deadline.Milliseconds()))
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	r.rid, r.status = resp.Header.Get("X-Tandem-Rid"), resp.StatusCode
	body, err := io.ReadAll(resp.Body)
	r.err = err
	r.read(string(body))
	return r
}

// read takes an answer's body apart: a stream, a document or an error.
func (r *answer) read(body string) {
	for _, line := range strings.Split(body, "\n") {
		data := strings.TrimPrefix(line, "data: ")
		if data == "[DONE]" {
			r.done = true
			continue
		}
		var v struct {
			Choices []struct {
				Text   string
				Finish *string `json:"finish_reason"`
			}
			Error *struct{ Code string }
		}
		if json.Unmarshal([]byte(data), &v) != nil {
			continue
		}
		for _, c := range v.Choices {
			r.text += c.Text
			if line == data && c.Finish != nil {
				r.done = true
			}
		}
		if v.Error != nil {
			r.code = v.Error.Code
		}
	}
}

// begin sends a request in the background.
func (f *fleet) begin(a ask) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- f.send(a) }()
	return got
}

// right says what is wrong with an answer that should be whole.
func (f *fleet) right(a ask, r answer) string {
	if want := a.expect(f.opts.sim); !r.done || r.err != nil || r.text != want {
		return fmt.Sprintf("%d %s, done %v, %v: %q, want %q", r.status, r.code, r.done, r.err, r.text, want)
	}
	return ""
}

// canary is a short request that must be answered rightly, now.
func (f *fleet) canary(what string) {
	f.t.Helper()
	a := ask{prompt: text(40, 7), deadline: 5 * time.Second}
	if bad := f.right(a, f.send(a)); bad != "" {
		f.t.Errorf("canary %s: %s", what, bad)
	}
}

// open is a request whose client reads when it likes, and leaves.
type open struct {
	net.Conn
	*bufio.Reader
}

func (f *fleet) open(a ask) *open {
	f.t.Helper()
	c, err := f.host.Dial(f.t.Context(), "tcp", routerIP+":80")
	if err != nil {
		f.t.Fatal(err)
	}
	body := a.body()
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: router\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return &open{c, bufio.NewReader(c)}
}

// events reads n events.
func (o *open) events(n int) error {
	for n > 0 {
		line, err := o.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "data: ") {
			n--
		}
	}
	return nil
}

// record is how the router says that a request ended.
type record struct {
	RID, Outcome, Code, Who, Detail string
	Took                            float64 `json:"took_s"`
	Attempts                        []struct{ Room, Code string }
}

// records returns the router's live and ended requests.
func (f *fleet) records() (live, ended []record) {
	f.t.Helper()
	var v struct{ Live, Ended []record }
	f.get("http://"+routerIP+":80/debug/rooms?limit=100000", &v)
	return v.Live, v.Ended
}

// last is the newest ended request.
func (f *fleet) last() record {
	f.t.Helper()
	_, ended := f.records()
	if len(ended) == 0 {
		f.t.Fatal("no request has ended")
	}
	return ended[0]
}

func (f *fleet) get(url string, v any) {
	f.t.Helper()
	resp, err := f.admin.Get(url)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		f.t.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
	}
}
