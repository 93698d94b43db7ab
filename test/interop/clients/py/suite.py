"""The official OpenAI Python client against Tandem. Usage: suite.py BASE_URL"""
import sys

import openai
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=30)
model = client.models.list().data[0].id
messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Count to five."}]
passed = 0


def check(name, ok, detail=""):
    global passed
    if not ok:
        print(f"python: FAIL {name}: {detail}")
        sys.exit(1)
    passed += 1


whole = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0)
text = whole.choices[0].message.content
check("chat", len(text) > 0 and whole.choices[0].finish_reason == "length", whole)
check("usage", whole.usage.completion_tokens == 12 and whole.usage.total_tokens == whole.usage.prompt_tokens + 12, whole.usage)

chunks = list(client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0, stream=True,
                                             stream_options={"include_usage": True}))
streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
check("a stream gives the same text", streamed == text, (streamed, text))
check("the last chunk has the usage", chunks[-1].usage and chunks[-1].usage.completion_tokens == 12, chunks[-1])
check("the stream says why it ended", [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length")

seeded = [client.chat.completions.create(model=model, messages=messages, max_tokens=8, temperature=1, seed=7).choices[0].message.content
          for _ in range(2)]
check("a seed repeats the text", seeded[0] == seeded[1], seeded)

done = client.completions.create(model=model, prompt="Once upon a time", max_tokens=6, temperature=0)
check("completion", len(done.choices[0].text) > 0 and done.object == "text_completion", done)

several = client.chat.completions.create(model=model, messages=messages, max_tokens=5, temperature=1, n=3, seed=3)
check("n = 3", [c.index for c in several.choices] == [0, 1, 2] and several.usage.completion_tokens == 15, several)

probed = client.chat.completions.create(model=model, messages=messages, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2)
entries = probed.choices[0].logprobs.content
check("logprobs", len(entries) == 4 and all(e.logprob <= 0 and len(e.top_logprobs) == 2 for e in entries), probed)

word = text.split()[1]
stopped = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0, stop=[word])
check("stop", word not in stopped.choices[0].message.content and stopped.choices[0].finish_reason == "stop", stopped)

for name, kwargs, status, code in [
    ("no message", {"messages": []}, 400, "bad_request"),
    ("temperature 3", {"messages": messages, "temperature": 3}, 400, "bad_request"),
    ("max_tokens 0", {"messages": messages, "max_tokens": 0}, 400, "bad_request"),
    ("too long", {"messages": messages, "max_tokens": 100_000}, 400, "too_long"),
]:
    try:
        client.chat.completions.create(model=model, **kwargs)
        check(name, False, "it was accepted")
    except openai.APIStatusError as e:
        check(name, e.status_code == status and e.code == code and len(str(e)) > 20, (e.status_code, e.code, str(e)))

try:
    client.with_options(default_headers={"X-Tandem-Timeout-Ms": "150"}).chat.completions.create(
        model=model, messages=messages, max_tokens=4000, temperature=0)
    check("deadline", False, "it was not kept")
except openai.APIStatusError as e:
    check("deadline", e.status_code == 504 and e.code == "deadline", (e.status_code, e.code))

for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=4000, temperature=0, stream=True):
    break  # the client leaves
check("the next request is served", client.chat.completions.create(model=model, messages=messages, max_tokens=12,
                                                                    temperature=0).choices[0].message.content == text)
print(f"python: {passed} passed")
