package worker

import (
	"net/http"
	"strings"

	"github.com/tandem-llm/tandem/internal/api"
	"github.com/tandem-llm/tandem/internal/chat"
	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/room"
)

// tokenizeText says what tokens a prompt or a chat has.
func (s *Server) tokenizeText(w http.ResponseWriter, r *http.Request, p *parts) {
	body, done, cause := api.ReadBody(w, r, 0, 0)
	defer done()
	var call *api.TokenizeCall
	if cause == nil {
		call, cause = api.ParseTokenize(body)
	}
	var tokens []engine.Token
	switch {
	case cause != nil:
	case call.Messages != nil:
		tokens, cause = p.chatTokens(r.Context(), call.Messages, call.Tools, unixNow(), -1)
	default:
		tokens, cause = p.encode(r.Context(), call.Text, call.Special, call.Special, -1)
	}
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	if tokens == nil {
		tokens = []engine.Token{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"tokens": tokens, "count": len(tokens), "max_model_len": p.info.Cells})
}

// detokenize returns tokens' text.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request, p *parts) {
	body, done, cause := api.ReadBody(w, r, 0, 0)
	defer done()
	var ids []int32
	if cause == nil {
		ids, cause = api.ParseDetokenize(body)
	}
	for i, t := range ids {
		if int(t) >= p.info.Vocab && cause == nil {
			cause = room.Because(room.BadRequest, "tokens: id %d at %d is outside the vocabulary of %d", t, i, p.info.Vocab)
		}
	}
	if cause != nil {
		api.WriteError(w, cause)
		return
	}
	var detok chat.Detokenizer
	var b strings.Builder
	for _, t := range ids {
		b.WriteString(detok.Push(p.piece(t, true)))
	}
	b.WriteString(detok.Flush())
	writeJSON(w, http.StatusOK, map[string]string{"prompt": b.String(), "text": b.String()})
}

// modelInfo is SGLang's.
func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request, p *parts) {
	writeJSON(w, http.StatusOK, map[string]any{"model_path": p.info.Path, "tokenizer_path": p.info.Path, "served_model_name": p.info.Model,
		"is_generation": s.cfg.Role != Prefill, "max_model_len": p.info.Cells})
}

// flushCache empties the prefix cache.
func (s *Server) flushCache(w http.ResponseWriter, r *http.Request, p *parts) {
	if r.Method != http.MethodPost && r.Method != http.MethodGet { // SGLang takes both
		w.Header().Set("Allow", "GET, POST")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	p.engine.FlushCache()
	writeJSON(w, http.StatusOK, map[string]bool{"flushed": true}) // at the engine's next step
}
