// Tool calls with the official OpenAI JavaScript client against Tandem. Usage: node tools.mjs BASE_URL
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0, timeout: 60_000 });
let passed = 0;
function check(name, ok, detail) {
  if (!ok) {
    console.log(`js tools: FAIL ${name}: ${JSON.stringify(detail)}`);
    process.exit(1);
  }
  passed++;
}

const model = (await client.models.list()).data[0].id;
const tools = [{
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { enum: ["Bonn", "Paris"] }, days: { type: "integer" } }, required: ["city", "days"], additionalProperties: false },
  },
}];
const messages = [{ role: "user", content: "What is the weather in Bonn tomorrow?" }];
const common = { model, tools, max_tokens: 120, temperature: 0 };
const valid = (call) => {
  const a = JSON.parse(call.function.arguments);
  return call.function.name === "get_weather" && ["Bonn", "Paris"].includes(a.city) && Number.isInteger(a.days);
};

const first = (await client.chat.completions.create({ ...common, messages, tool_choice: "required", parallel_tool_calls: false })).choices[0];
check("a required call", first.finish_reason === "tool_calls" && first.message.content === null && valid(first.message.tool_calls[0]), first);

const talk = [...messages, first.message, { role: "tool", tool_call_id: first.message.tool_calls[0].id, content: '{"celsius":21}' }];
const answer = (await client.chat.completions.create({ ...common, messages: talk, tool_choice: "none" })).choices[0];
check("the tool's result is answered", answer.message.content.length > 0 && !answer.message.tool_calls, answer);

const stream = client.chat.completions.stream({ ...common, messages, tool_choice: { type: "function", function: { name: "get_weather" } } });
const final = (await stream.finalChatCompletion()).choices[0];
check("a named call as a stream", final.finish_reason === "tool_calls" && valid(final.message.tool_calls[0]) && !final.message.content, final);

let text = "";
let finish = null;
for await (const chunk of await client.chat.completions.create({ ...common, messages: talk, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  finish = chunk.choices[0]?.finish_reason ?? finish;
}
check("auto as a stream", finish !== null && (text.length > 0 || finish === "tool_calls"), [text, finish]);

try {
  await client.chat.completions.create({ ...common, messages, tool_choice: { type: "function", function: { name: "x" } } });
  check("an unknown tool", false, "it was accepted");
} catch (e) {
  check("an unknown tool", e.status === 400 && e.message.includes("none of the tools"), e.message);
}
console.log(`js tools: ${passed} passed`);
