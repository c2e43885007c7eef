// The Anthropic SDK in a loop.

import Anthropic from "@anthropic-ai/sdk";
import { BASE_URL, DESCRIPTIONS, FORM, SYSTEM, TOOLS, drive } from "./driver.mjs";

const client = new Anthropic({ baseURL: BASE_URL, apiKey: "none" });
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = Object.entries(DESCRIPTIONS).map(([name, description]) => ({ name, description, input_schema }));

function runTool({ id, name, input }) {
  try {
    return { type: "tool_result", tool_use_id: id, content: TOOLS[name](input) };
  } catch (error) {
    return { type: "tool_result", tool_use_id: id, content: `Error: ${error}`, is_error: true };
  }
}

async function converse(question, respond) {
  const messages = [{ role: "user", content: question }];
  for (;;) {
    const request = { model: "claude-sonnet-5", max_tokens: 500, system: SYSTEM, messages, tools };
    const { role, content } = await respond(request);
    const results = content.filter((block) => block.type === "tool_use").map(runTool);
    if (!results.length) return content[0].text;
    messages.push({ role, content }, { role: "user", content: results });
  }
}

const ask = (question) => converse(question, (request) => client.messages.create(request));
const askStream = (question) => converse(question, (request) => client.messages.stream(request).finalMessage());

async function askSchema(question) {
  const message = await client.messages.create({
    model: "claude-sonnet-5",
    max_tokens: 500,
    messages: [{ role: "user", content: question }],
    output_config: { format: { type: "json_schema", schema: FORM } },
  });
  return JSON.parse(message.content[0].text);
}

await drive({ ask, askStream, askSchema });
