// The OpenAI SDK's chat completions in a loop.

import OpenAI from "openai";
import { BASE_URL, DESCRIPTIONS, FORM, SYSTEM, TOOLS, drive } from "./driver.mjs";

const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: "none" });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = Object.entries(DESCRIPTIONS).map(([name, description]) => ({
  type: "function",
  function: { name, description, parameters },
}));

function runTool(call) {
  let content;
  try {
    content = TOOLS[call.function.name](JSON.parse(call.function.arguments));
  } catch (error) {
    content = `Error: ${error}`;
  }
  return { role: "tool", tool_call_id: call.id, content };
}

async function converse(question, complete) {
  const messages = [
    { role: "system", content: SYSTEM },
    { role: "user", content: question },
  ];
  for (;;) {
    const message = await complete({ model: "gpt-4o", messages, tools });
    messages.push(message);
    if (!message.tool_calls?.length) return message.content;
    messages.push(...message.tool_calls.map(runTool));
  }
}

const ask = (question) =>
  converse(question, async (request) => (await client.chat.completions.create(request)).choices[0].message);

async function streamed(request) {
  const message = { role: "assistant", content: "", tool_calls: [] };
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    const delta = chunk.choices[0]?.delta ?? {};
    message.content += delta.content ?? "";
    for (const { index, id, function: called } of delta.tool_calls ?? []) {
      message.tool_calls[index] ??= { id, type: "function", function: { name: called.name, arguments: "" } };
      message.tool_calls[index].function.arguments += called.arguments ?? "";
    }
  }
  if (!message.tool_calls.length) delete message.tool_calls;
  return message;
}

async function askSchema(question) {
  const { choices } = await client.chat.completions.create({
    model: "gpt-4o",
    messages: [{ role: "user", content: question }],
    response_format: { type: "json_schema", json_schema: { name: "report", strict: true, schema: FORM } },
  });
  return JSON.parse(choices[0].message.content);
}

await drive({ ask, askStream: (question) => converse(question, streamed), askSchema });
