// A conversation with tools, by the official client: node client.mjs BASE_URL < plan.json
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const { prompts, results } = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "key-of-one", maxRetries: 0 });
const parameters = { type: "object", properties: { path: { type: "string" } } };
const tools = [{ type: "function", function: { name: "read_file", parameters } }];
const messages = [{ role: "system", content: "You read files." }];

async function ask(streams) {
  const request = { model: "stub-model", messages, tools };
  if (streams) {
    return await client.chat.completions.stream(request).finalMessage();
  }
  const answer = await client.chat.completions.create(request);
  return answer.choices[0].message;
}

let count = 0;
for (const prompt of prompts) {
  messages.push({ role: "user", content: prompt });
  for (;;) {
    const message = await ask(count++ % 2);
    messages.push(message);
    if (!message.tool_calls?.length) break;
    for (const call of message.tool_calls) {
      const { path } = JSON.parse(call.function.arguments);
      messages.push({ role: "tool", tool_call_id: call.id, content: results[path] });
    }
  }
}
console.log(messages.length - 1);
