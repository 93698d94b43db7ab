// The official OpenAI JavaScript client against Tandem. Usage: node suite.mjs BASE_URL
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0, timeout: 30_000 });
let passed = 0;
function check(name, ok, detail) {
  if (!ok) {
    console.log(`js: FAIL ${name}: ${JSON.stringify(detail)}`);
    process.exit(1);
  }
  passed++;
}

const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Name three colours." }];
const ask = (more = {}) => client.chat.completions.create({ model, messages, max_tokens: 10, temperature: 0, ...more });

const whole = await ask();
const text = whole.choices[0].message.content;
check("chat", text.length > 0 && whole.usage.completion_tokens === 10, whole);

let streamed = "";
let finish = null;
let usage = null;
for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  finish = chunk.choices[0]?.finish_reason ?? finish;
  usage = chunk.usage ?? usage;
}
check("a stream gives the same text", streamed === text, [streamed, text]);
check("the stream says why it ended", finish === "length" && usage.completion_tokens === 10, [finish, usage]);

const two = await ask({ n: 2, temperature: 1, seed: 5 });
check("n = 2", two.choices.length === 2 && two.choices[1].index === 1, two);

const probed = await ask({ logprobs: true, top_logprobs: 1, max_tokens: 3 });
check("logprobs", probed.choices[0].logprobs.content.length === 3, probed);

const done = await client.completions.create({ model, prompt: ["The sea"], max_tokens: 5, temperature: 0 });
check("completion", done.choices[0].text.length > 0, done);

for (const [name, body, status] of [
  ["no message", { messages: [] }, 400],
  ["top_p 2", { top_p: 2 }, 400],
  ["too long", { max_tokens: 100_000 }, 400],
]) {
  try {
    await ask(body);
    check(name, false, "it was accepted");
  } catch (e) {
    check(name, e.status === status && e.message.length > 20, [e.status, e.message]);
  }
}

const controller = new AbortController();
try {
  for await (const _ of await client.chat.completions.create(
    { model, messages, max_tokens: 4000, temperature: 0, stream: true }, { signal: controller.signal })) {
    controller.abort();
  }
} catch (e) {
  check("an abort is an abort", e instanceof OpenAI.APIUserAbortError || e.name === "AbortError", String(e));
}
check("the next request is served", (await ask()).choices[0].message.content === text);
console.log(`js: ${passed} passed`);
