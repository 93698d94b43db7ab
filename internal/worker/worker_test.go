package worker

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/engine/llama"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/svc"
)

// served is a worker that serves alone, behind a test server.
type served struct {
	*httptest.Server
	s *Server
	t *testing.T
}

func serve(t *testing.T, cfg Config) *served {
	t.Helper()
	cfg.Role = Serve
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg = cfg.withDefaults()
	g := svc.New(t.Context(), "serve", cfg.Log)
	s := &Server{cfg: cfg, self: id.NewIncarnation(), group: g, started: time.Now(), metrics: newMetrics()}
	s.metrics.server.Store(s)
	unload, err := s.load(g)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.NewServer(t.Context(), s.Handler(), slog.NewLogLogger(slog.DiscardHandler, 0))
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		if held, _ := s.parts.Load().engine.Cells(); held != 0 || s.parts.Load().record.Live() != 0 {
			t.Errorf("%d cells and %d requests are left", held, s.parts.Load().record.Live())
		}
		g.Stop(nil)
		g.Wait()
		unload()
	})
	return &served{srv, s, t}
}

func simulated(t *testing.T) *served { return serve(t, Config{Engine: "sim"}) }

func real(t *testing.T) *served {
	t.Helper()
	lib := testmodel.Library(t)
	path, err := testmodel.Path(testmodel.LlamaGQA)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, Config{Engine: "llama", Deterministic: true, Llama: llama.Config{LibDir: lib, ModelPath: path, Context: 2048, Slots: 8}})
}

func (s *served) post(path, body string) (int, string) {
	s.t.Helper()
	resp, err := http.Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// answer posts a body that must be answered well, into v.
func (s *served) answer(path, body string, v any) {
	s.t.Helper()
	status, text := s.post(path, body)
	if status != http.StatusOK {
		s.t.Fatalf("%s %.200s: %d %s", path, body, status, text)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
}

// events posts a body whose answer is a stream that ends well.
func (s *served) events(path, body string) [][]byte {
	s.t.Helper()
	status, text := s.post(path, body)
	if status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", path, body, status, text)
	}
	r := api.NewEventReader(strings.NewReader(text), 0)
	var out [][]byte
	for {
		e, err := r.Next()
		if err != nil {
			s.t.Fatalf("%v, without [DONE]: %s", err, text)
		}
		if string(e.Data) == "[DONE]" {
			return out
		}
		if len(e.Data) > 0 {
			out = append(out, bytes.Clone(e.Data))
		}
	}
}

type logprob struct {
	Token   string
	Logprob *float64
	Bytes   []int
	Top     []logprob `json:"top_logprobs"`
}

type textLogs struct {
	Tokens []string
	Logs   []*float64           `json:"token_logprobs"`
	Top    []map[string]float64 `json:"top_logprobs"`
	Offset []int                `json:"text_offset"`
}

type chatAnswer struct {
	Choices []struct {
		Index   int
		Message struct{ Content string }
		Delta   struct{ Role, Content string }
		Finish  *string                      `json:"finish_reason"`
		Logs    *struct{ Content []logprob } `json:"logprobs"`
	}
	Usage *usage
}

type textAnswer struct {
	Choices []struct {
		Index  int
		Text   string
		Finish *string   `json:"finish_reason"`
		Logs   *textLogs `json:"logprobs"`
	}
	Usage *usage
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

type generated struct {
	Index *int
	Text  string
	IDs   []int32 `json:"output_ids"`
	Meta  struct {
		Finish *struct {
			Type    string
			Matched any
			Length  int
		} `json:"finish_reason"`
		Prompt     int       `json:"prompt_tokens"`
		Completion int       `json:"completion_tokens"`
		Output     [][3]any  `json:"output_token_logprobs"`
		OutputTop  [][][]any `json:"output_top_logprobs"`
		Input      [][3]any  `json:"input_token_logprobs"`
		InputTop   [][][]any `json:"input_top_logprobs"`
	} `json:"meta_info"`
}

func mustTemplate(t *testing.T, text string) *chat.Renderer {
	t.Helper()
	r, err := chat.New(text, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}
