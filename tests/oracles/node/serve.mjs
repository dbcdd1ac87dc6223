// What the official client makes of `hermes serve`; standard input says where it is.
import OpenAI from "openai";

let text = "";
for await (const piece of process.stdin) text += piece;
const { base_url: baseURL, key: apiKey, model, image, tools } = JSON.parse(text);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 60_000 });
const ask = (content, more = {}) => ({ model, messages: [{ role: "user", content }], ...more });
const out = {};

const { data, response } = await client.chat.completions.create(ask("hello")).withResponse();
out.whole = data.choices[0].message.content;
out.session = response.headers.get("x-hermes-session");

out.streamed = "";
const stream = await client.chat.completions.create(ask("hello", { stream: true }));
for await (const chunk of stream) out.streamed += chunk.choices[0]?.delta?.content ?? "";

const parts = [{ type: "text", text: "weather?" }, { type: "image_url", image_url: { url: image } }];
const called = await client.chat.completions.create(ask(parts, { tools }));
out.calls = called.choices[0].message.tool_calls;

const first = await client.responses.create({ model, input: "one" });
const second = client.responses.stream({ model, input: "two", previous_response_id: first.id });
out.deltas = "";
second.on("response.output_text.delta", (event) => (out.deltas += event.delta));
out.final = (await second.finalResponse()).output_text;

try {
  await client.chat.completions.create(ask("hello", { n: 2 }));
} catch (error) {
  out.error = [error.constructor.name, error.status, error.code];
}

const left = await client.chat.completions.create(ask("hello", { stream: true }));
for await (const chunk of left) {
  if (chunk.choices[0]?.delta?.content) {
    out.left = chunk.choices[0].delta.content;
    break;
  }
}
left.controller.abort();
console.log(JSON.stringify(out));
