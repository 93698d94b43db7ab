package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3"
)

// valid says whether a call is one of get_weather with arguments of its schema.
func valid(name, arguments string) bool {
	var a struct {
		City string `json:"city"`
		Days *int64 `json:"days"`
	}
	return name == "get_weather" && json.Unmarshal([]byte(arguments), &a) == nil && (a.City == "Bonn" || a.City == "Paris") && a.Days != nil
}

// tools is the round of a tool call.
func tools(ctx context.Context, client openai.Client, model string) {
	params := openai.ChatCompletionNewParams{
		Model:       model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the weather in Paris tomorrow?")},
		MaxTokens:   openai.Int(120),
		Temperature: openai.Float(0),
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name:        "get_weather",
			Description: openai.String("The weather of a city."),
			Parameters: openai.FunctionParameters{"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
				"properties": map[string]any{"city": map[string]any{"enum": []string{"Bonn", "Paris"}}, "days": map[string]any{"type": "integer"}}},
		})},
	}
	required := params
	required.ParallelToolCalls = openai.Bool(false)
	required.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	first := must(client.Chat.Completions.New(ctx, required)).Choices[0]
	check("a required call", first.FinishReason == "tool_calls" && len(first.Message.ToolCalls) == 1, first.RawJSON())
	call := first.Message.ToolCalls[0]
	check("its arguments follow the schema", valid(call.Function.Name, call.Function.Arguments), call.RawJSON())

	stream := client.Chat.Completions.NewStreaming(ctx, required)
	acc := openai.ChatCompletionAccumulator{}
	finished := 0
	for stream.Next() {
		acc.AddChunk(stream.Current())
		if c, ok := acc.JustFinishedToolCall(); ok && valid(c.Name, c.Arguments) {
			finished++
		}
	}
	check("the call as a stream", stream.Err() == nil && finished == 1 && acc.Choices[0].Message.Content == "", fmt.Sprint(stream.Err(), finished))

	talk := params
	talk.Messages = append(talk.Messages, first.Message.ToParam(), openai.ToolMessage(`{"celsius":21}`, call.ID))
	talk.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}
	answer := must(client.Chat.Completions.New(ctx, talk)).Choices[0].Message
	check("the tool's result is answered", answer.Content != "" && len(answer.ToolCalls) == 0, answer.RawJSON())
	fmt.Printf("go tools: %d passed\n", passed)
}
