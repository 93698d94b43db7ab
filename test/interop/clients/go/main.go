// Command suite runs the official OpenAI Go client against Tandem.
// Usage: go run . BASE_URL [tools]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var passed int

func check(name string, ok bool, detail any) {
	if !ok {
		fmt.Printf("go: FAIL %s: %v\n", name, detail)
		os.Exit(1)
	}
	passed++
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Printf("go: FAIL: %v\n", err)
		os.Exit(1)
	}
	return v
}

func main() {
	client := openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	model := must(client.Models.List(ctx)).Data[0].ID
	if len(os.Args) > 2 {
		tools(ctx, client, model)
		return
	}
	params := openai.ChatCompletionNewParams{
		Model:       model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell me about rivers.")},
		MaxTokens:   openai.Int(10),
		Temperature: openai.Float(0),
	}
	whole := must(client.Chat.Completions.New(ctx, params))
	text := whole.Choices[0].Message.Content
	check("chat", text != "" && whole.Usage.CompletionTokens == 10, whole.RawJSON())

	stream := client.Chat.Completions.NewStreaming(ctx, params)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	check("the stream ends well", stream.Err() == nil, stream.Err())
	check("a stream gives the same text", acc.Choices[0].Message.Content == text, acc.Choices[0].Message.Content)

	several := params
	several.N, several.Temperature, several.Seed = openai.Int(2), openai.Float(1), openai.Int(9)
	check("n = 2", len(must(client.Chat.Completions.New(ctx, several)).Choices) == 2, "")

	bad := params
	bad.Temperature = openai.Float(9)
	_, err := client.Chat.Completions.New(ctx, bad)
	var apiErr *openai.Error
	check("temperature 9", errors.As(err, &apiErr) && apiErr.StatusCode == 400 && apiErr.Code == "bad_request", err)

	short, stop := context.WithCancel(ctx)
	long := params
	long.MaxTokens = openai.Int(4000)
	leaving := client.Chat.Completions.NewStreaming(short, long)
	check("the first chunk comes", leaving.Next(), leaving.Err())
	stop()
	for leaving.Next() {
	}
	check("the next request is served", must(client.Chat.Completions.New(ctx, params)).Choices[0].Message.Content == text, "")
	fmt.Printf("go: %d passed\n", passed)
}
