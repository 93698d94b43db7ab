"""Tool calls with the official OpenAI Python client against Tandem. Usage: tools.py BASE_URL"""
import json
import sys

import openai
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=60)
model = client.models.list().data[0].id
tools = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Bonn", "Paris"]}, "days": {"type": "integer"}},
                   "required": ["city", "days"], "additionalProperties": False}}}]
messages = [{"role": "user", "content": "What is the weather in Paris tomorrow?"}]
common = {"model": model, "tools": tools, "max_tokens": 120, "temperature": 0}
passed = 0


def check(name, ok, detail=""):
    global passed
    if not ok:
        print(f"python tools: FAIL {name}: {detail}")
        sys.exit(1)
    passed += 1


def valid(call):
    arguments = json.loads(call.function.arguments)
    return call.function.name == "get_weather" and set(arguments) == {"city", "days"} and arguments["city"] in ("Bonn", "Paris") and isinstance(arguments["days"], int)


first = client.chat.completions.create(messages=messages, tool_choice="required", parallel_tool_calls=False, **common).choices[0]
check("a required call", first.finish_reason == "tool_calls" and first.message.content is None and len(first.message.tool_calls) == 1, first)
check("its arguments follow the schema", valid(first.message.tool_calls[0]) and first.message.tool_calls[0].type == "function", first)

call = first.message.tool_calls[0]
talk = messages + [first.message, {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"celsius": 21})}]
answer = client.chat.completions.create(messages=talk, tool_choice="none", **common).choices[0]
check("the tool's result is answered", answer.message.content and not answer.message.tool_calls, answer)
free = client.chat.completions.create(messages=talk, **common).choices[0]
check("auto", free.message.content or free.message.tool_calls, free)

streamed, names, finish, content = {}, {}, None, ""
for chunk in client.chat.completions.create(messages=messages, tool_choice={"type": "function", "function": {"name": "get_weather"}}, stream=True, **common):
    for c in chunk.choices:
        content += c.delta.content or ""
        finish = c.finish_reason or finish
        for piece in c.delta.tool_calls or []:
            if piece.id:
                names[piece.index] = piece.function.name
            streamed[piece.index] = streamed.get(piece.index, "") + piece.function.arguments
check("a named call as a stream", names == {0: "get_weather"} and finish == "tool_calls" and content == "", (names, finish, content))
check("its pieces are the arguments", set(json.loads(streamed[0])) == {"city", "days"}, streamed)

with client.chat.completions.stream(messages=messages, tool_choice="required", parallel_tool_calls=False, **common) as stream:
    for _ in stream:
        pass
    helped = stream.get_final_completion().choices[0]
check("the client's own stream helper", helped.finish_reason == "tool_calls" and valid(helped.message.tool_calls[0]), helped)

for name, kwargs, text in [
    ("an unknown tool", {"messages": messages, "tools": tools, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "none of the tools"),
    ("an answer to no call", {"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}, "the id of no call"),
    ("functions", {"messages": messages, "functions": [{"name": "f"}]}, "send tools"),
]:
    try:
        client.chat.completions.create(model=model, **kwargs)
        check(name, False, "it was accepted")
    except openai.BadRequestError as e:
        check(name, text in str(e), str(e))
print(f"python tools: {passed} passed")
