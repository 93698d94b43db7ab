package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Tokenize returns a text's token ids, with the beginning-of-sequence token if
// bos. Tandem's workers have this endpoint, and its router.
func Tokenize(ctx context.Context, url, text string, bos bool) ([]int32, error) {
	body, err := json.Marshal(map[string]any{"prompt": text, "add_special_tokens": bos})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/tokenize", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, fmt.Errorf("%s/tokenize: status %d: %s", url, resp.StatusCode, text)
	}
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, fmt.Errorf("%s/tokenize: %w", url, err)
	}
	return out.Tokens, nil
}
