package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/room"
)

func TestBadInputIsRefusedWithValueAndLimitAndLeavesNothing(t *testing.T) {
	s := serve(t, Config{Engine: "sim", Sim: sim.Config{Cells: 300}})
	const chat, text, gen = "/v1/chat/completions", "/v1/completions", "/generate"
	const msg = `"messages":[{"role":"user","content":"x"}]`
	for _, x := range []struct {
		path, body string
		code       room.Code
		want       string
	}{
		{chat, ``, room.BadRequest, "the body is empty"},
		{chat, `no`, room.BadRequest, `starts with \"n\"`},
		{chat, `{"messages":[]}`, room.BadRequest, "messages: the list is empty"},
		{chat, `{"messages":"x"}`, room.BadRequest, "messages: "},
		{chat, "{\"messages\":\"\xff\"}", room.BadRequest, "not valid UTF-8"},
		{chat, `{"model":"other",` + msg + `}`, room.BadRequest, `model: \"other\" is not served here, \"sim\" is`},
		{text, `{"prompt":""}`, room.BadRequest, "prompt: the prompt is empty"},
		{text, `{"prompt":"x","max_tokens":0}`, room.BadRequest, "max_tokens: 0 is below the least of 1"},
		{text, `{"prompt":"x","max_tokens":-5}`, room.BadRequest, "max_tokens: -5 is below the least of 1"},
		{text, `{"prompt":"x","max_tokens":16777217}`, room.BadRequest, "above the limit of 16777216"},
		{text, `{"prompt":"0123456789","max_tokens":290}`, room.TooLong, "prompt of 11 tokens + max_tokens 290 exceeds the context of 300"},
		{text, `{"prompt":"` + strings.Repeat("y", 400) + `"}`, room.TooLong, "prompt of 401 tokens + max_tokens 1 exceeds the context of 300"},
		{text, `{"prompt":"` + strings.Repeat("y", 30_000) + `"}`, room.TooLong, "prompt of 30000 bytes, at least 468 tokens, + max_tokens 512 exceeds the context of 300"},
		{text, `{"prompt":[5,4096]}`, room.BadRequest, "id 4096 at 1 of prompt 0 is outside the vocabulary of 4096"},
		{text, `{"prompt":"x","logit_bias":{"4096":1}}`, room.BadRequest, "logit_bias: token 4096 is outside the vocabulary of 4096"},
		{text, `{"prompt":["x","0123456789"],"max_tokens":290}`, room.TooLong, "prompt of 11 tokens + max_tokens 290"},
		{text, `{"prompt":"x","bootstrap_room":7}`, room.BadRequest, "bootstrap_room: this worker serves alone"},
		{text, `{"prompt":"x","bootstrap_room":0}`, room.BadRequest, "bootstrap_room: 0 is below the least of 1"},
		{text, `{"prompt":["x","y"],"bootstrap_room":7}`, room.BadRequest, "bootstrap_room: several prompts"},
		{chat, `{` + msg + `,"response_format":{"type":"json_object"}}`, room.BadRequest, "this engine cannot hold an answer to a grammar"},
		{chat, `{` + msg + `,"n":99}`, room.BadRequest, "n: 99 is above the limit of 16"},
		{gen, `{"text":"x","sampling_params":{"regex":"a+"}}`, room.BadRequest, "sampling_params.regex: "},
		{gen, `{"text":"x","image_data":"http://x"}`, room.BadRequest, "image_data: "},
		{"/tokenize", `{}`, room.BadRequest, "prompt: missing"},
		{"/tokenize", `{"prompt":5}`, room.BadRequest, "prompt: 5 is not a string"},
		{"/detokenize", `{"tokens":[4096]}`, room.BadRequest, "tokens: id 4096 at 0 is outside the vocabulary of 4096"},
		{"/detokenize", `{}`, room.BadRequest, "tokens: missing"},
	} {
		status, answer := s.post(x.path, x.body)
		var e struct{ Error api.ErrorBody }
		json.Unmarshal([]byte(answer), &e)
		if status != api.Lookup(x.code).Status || e.Error.Code != string(x.code) || !strings.Contains(answer, x.want) {
			t.Errorf("%s %.80s: %d %s, want %s with %s", x.path, x.body, status, answer, x.code, x.want)
		}
	}
}

func TestATemplatesRefusalReachesTheClient(t *testing.T) {
	s := simulated(t)
	p := s.s.parts.Load()
	old := p.chat
	defer func() { p.chat = old }()
	p.chat = mustTemplate(t, `{{ raise_exception("roles must alternate") }}`)
	if status, answer := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`); status != http.StatusBadRequest || !strings.Contains(answer, "roles must alternate") {
		t.Errorf("%d %s", status, answer)
	}
}

// slowTokenizer blocks in Encode until it is let go.
type slowTokenizer struct {
	engine.Tokenizer
	entered, leave chan struct{}
}

func (t *slowTokenizer) Encode(text string, special, bos bool) ([]engine.Token, error) {
	if len(text) > 1000 {
		t.entered <- struct{}{}
		<-t.leave
	}
	return t.Tokenizer.Encode(text, special, bos)
}

// slowEngine has a slowTokenizer.
type slowEngine struct {
	engine.Engine
	tok *slowTokenizer
}

func (e *slowEngine) Tokenizer() engine.Tokenizer { return e.tok }

func TestLargePromptsTakeTurnsAndAClientThatLeavesTakesNone(t *testing.T) {
	s := simulated(t)
	p := s.s.parts.Load()
	places := runtime.GOMAXPROCS(0)
	tok := &slowTokenizer{p.engine.Tokenizer(), make(chan struct{}), make(chan struct{})}
	old := p.engine
	p.engine = &slowEngine{old, tok}
	done := make(chan *room.Cause, places)
	large := strings.Repeat("x", 2000)
	for range places {
		go func() {
			_, cause := p.encode(context.Background(), large, false, true, 10)
			done <- cause
		}()
	}
	for range places {
		<-tok.entered
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(room.Because(room.ClientGone, "left"))
	if _, cause := p.encode(ctx, large, false, true, 10); cause == nil || cause.Code != room.ClientGone {
		t.Errorf("a client that left: %v", cause)
	}
	close(tok.leave)
	for range places {
		if cause := <-done; cause != nil {
			t.Error(cause)
		}
	}
	p.engine = old
}

func TestAPromptOfThirtyMegabytesIsRefusedAtOnce(t *testing.T) {
	s := real(t)
	began := time.Now()
	status, answer := s.post("/v1/completions", fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("All work and no play. ", 30<<20/22)))
	if status != http.StatusBadRequest || !strings.Contains(answer, "exceeds the context of 2048 tokens") {
		t.Errorf("%d %.300s", status, answer)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
